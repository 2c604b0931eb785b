"""The tenant."""

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
