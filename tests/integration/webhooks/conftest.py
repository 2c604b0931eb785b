"""Fixtures of the tests of webhooks."""

from tests.support.webhooks import receiver

__all__ = ["receiver"]
