"""Search, list, count and forget memories."""
