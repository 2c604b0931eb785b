"""The search index: its tables, and the caches of them in memory."""
