"""Extractors and mergers: the ports and their adapters."""
