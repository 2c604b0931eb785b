"""Re-rankers: the port and its adapters."""
