"""One module a table: its named queries as methods."""
