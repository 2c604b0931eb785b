"""One server for all programs of a user: where it is, who uses it, and how it is started."""
