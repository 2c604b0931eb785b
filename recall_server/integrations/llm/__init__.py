"""Language models: the Messages API and strict JSON."""
