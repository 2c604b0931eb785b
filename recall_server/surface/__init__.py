"""The doors: the only floor that knows protocols."""
