"""The tenant, and the named parts (containers) of its namespace."""

import re
from typing import NewType

from recall_server.domain.errors import Invalid

Namespace = NewType("Namespace", str)
"""The tenant. It comes from the bearer token, never from an argument."""

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9._:-]{0,62}[a-z0-9])?", re.ASCII)


def namespace(text: str) -> Namespace:
    """Check a namespace: 1-64 of a-z 0-9 . _ : - with a letter or digit at both ends."""
    if not _NAMESPACE.fullmatch(text):
        raise Invalid(
            "A namespace is 1 to 64 characters of a-z, 0-9, '.', '_', ':' and '-', "
            "starting and ending with a letter or digit."
        )
    return Namespace(text)


NONE = ""
"""The container of everything that is in none."""

_CONTAINER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,126}[A-Za-z0-9])?", re.ASCII)


def container(text: str) -> str:
    """Check a container's name: 1-128 letters, digits and . _ : / - with a letter or digit at both
    ends, compared exactly; `NONE` is valid too. Raises `Invalid`.
    """
    if text != NONE and not _CONTAINER.fullmatch(text):
        raise Invalid(
            "A container is 1 to 128 characters of A-Z, a-z, 0-9, '.', '_', ':', '/' and '-', "
            "starting and ending with a letter or digit; none is the empty string."
        )
    return text
