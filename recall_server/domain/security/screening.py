"""Detects texts that give orders to a model.

The server does not start if one of its tool descriptions matches; a proposed memory that matches is
rejected. This is a signal, not a barrier: a paraphrase passes.
"""

import re
import unicodedata

_ORDERS = (
    (
        "overrides instructions",
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\b.{0,40}"
            r"\b(?:instruction|prompt|rule|message)s?\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "gives a conditional order",
        re.compile(
            r"\b(?:if|when|whenever|before|after)\b.{0,60}"
            r"\b(?:you must|always call|must call|must use)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "asks for secrecy",
        re.compile(
            r"\b(?:do not|don['’]t|never)\b.{0,20}\b(?:tell|mention|reveal|show)\b.{0,30}"
            r"\b(?:user|human|anyone)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "asks to send something elsewhere",
        re.compile(
            r"\b(?:send|post|upload|forward|exfiltrate|leak)\b.{0,40}\b(?:to|via)\b.{0,40}"
            r"\b(?:server|endpoint|url|webhook|e-?mail|address)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "asks for a secret",
        re.compile(
            r"\b(?:include|pass|append|provide)\b.{0,40}"
            r"\b(?:api[ _-]?keys?|passwords?|credentials?|private keys?|system prompt)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "plays another role",
        re.compile(r"<\s*/?\s*(?:system|important|instructions?|assistant)\b", re.IGNORECASE),
    ),
)
_OUT_OF_PLACE = (
    ("names an address", re.compile(r"(?:https?|ftp|file|data|javascript):", re.IGNORECASE)),
    ("hides a comment", re.compile(r"<!--")),
    ("carries encoded text", re.compile(r"[A-Za-z0-9+/]{80,}={0,2}")),
)


def orders(text: str) -> list[str]:
    """Return the ways in which `text` gives orders to a model, each as the end of a sentence."""
    return [reason for reason, pattern in _ORDERS if pattern.search(text)]


def screen(text: str) -> list[str]:
    """Return what is suspicious about a description of ours: orders, addresses and hidden parts."""
    found = orders(text) + [reason for reason, pattern in _OUT_OF_PLACE if pattern.search(text)]
    if any(
        unicodedata.category(char) in ("Cf", "Co", "Cc") and char not in "\n\t" for char in text
    ):
        found.append("hides characters")
    return found
