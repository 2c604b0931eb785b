"""Erase, purge, hold and prove it."""
