"""Embedders: the port and its adapters."""
