"""Measurements: what an operation costs, as a ratio to doing nothing through the same server."""
