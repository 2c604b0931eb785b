"""The server of a test with limits of its own."""

from tests.security.conftest import serve

__all__ = ["serve"]
