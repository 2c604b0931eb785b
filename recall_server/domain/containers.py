"""Containers: named rooms within a namespace, such as a project, a chat or a set of documents.

A room is there as soon as something is in it. What is said in one is compared with what is known in
the same one: it replaces, confirms and questions nothing elsewhere.
"""

import re

from recall_server.domain.errors import Invalid

NONE = ""
"""The container of what is in no container."""

_CONTAINER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,126}[A-Za-z0-9])?", re.ASCII)


def container(text: str) -> str:
    """Check a container: 1-128 of letters, digits and . _ : / - with a letter or digit at both
    ends, of which each differs from every other; `NONE` is one too. Raises `Invalid`.
    """
    if text != NONE and not _CONTAINER.fullmatch(text):
        raise Invalid(
            "A container is 1 to 128 characters of A-Z, a-z, 0-9, '.', '_', ':', '/' and '-', "
            "starting and ending with a letter or digit; none is the empty string."
        )
    return text
