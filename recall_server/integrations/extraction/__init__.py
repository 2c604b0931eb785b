"""Extractors, mergers and judges: the ports and their adapters."""
