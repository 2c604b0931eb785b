"""Plain HTTP routes under /v1."""
