"""The server of the other doors' tests, attacked."""

from tests.surface.conftest import running

__all__ = ["running"]
