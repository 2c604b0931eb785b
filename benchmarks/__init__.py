"""Benchmarks of the real server: `python -m benchmarks --help`."""
