"""Outgoing HTTP and the addresses it may reach."""
