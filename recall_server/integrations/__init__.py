"""Outside systems: each port with its adapters."""
