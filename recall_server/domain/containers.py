"""Containers: named parts of a namespace, such as a project, a chat or a set of documents.

A container exists as soon as it holds something. Statements are reconciled within their own
container only.
"""

import re

from recall_server.domain.errors import Invalid

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
