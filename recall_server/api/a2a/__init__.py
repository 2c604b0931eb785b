"""A2A: JSON-RPC, REST and the plain task routes."""
