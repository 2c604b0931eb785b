"""The length of tests that show more the longer they run."""

import os

import pytest

_FULL = os.environ.get("RECALL_TEST_LENGTH") == "full"
# `make faults` runs these at full length.
has_full_length = pytest.mark.full_length


def at_full_length(full: int, otherwise: int) -> int:
    """Return `full` under `make faults`; in the suite, enough to show that the rule holds."""
    return full if _FULL else otherwise
