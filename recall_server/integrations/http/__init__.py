"""Outgoing HTTP and the addresses it may connect to."""
