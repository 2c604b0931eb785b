"""Language models: one request with a strict JSON answer, and an adapter for each vendor."""
