"""The search index and what of it is held in memory."""
