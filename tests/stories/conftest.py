"""The fixtures of the command line."""

from tests.support.cli import clean_environment, url

__all__ = ["clean_environment", "url"]
