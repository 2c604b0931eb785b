"""Webhooks: who is told of the events of a namespace, and how they get there."""
