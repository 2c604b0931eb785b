"""What the demo asks: of our own conversation by heart, of another what was found in it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from recall_server.domain.memory import MemoryType

Json = dict[str, Any]
ASKED = 4
WORDS_MAX = 8
BY_HEART = (
    "Which database did billing move to?",
    "Who looks after the PDF renderer?",
    "Is Owen vegetarian?",
    "How do we deploy billing?",
)
# They say that something was, not what; the value says it all.
_VAGUE = frozenset({"did", "has", "is", "is_a", "correction"})


def about(memories: Sequence[Json], text: str) -> list[str]:
    """Questions that `memories` should answer; where there are none, the first words of `text`."""
    asked = dict.fromkeys(_asked(memories))
    return list(islice(asked, ASKED)) or [" ".join(text.split()[:WORDS_MAX])]


def _asked(memories: Sequence[Json]) -> Iterator[str]:
    entities = Counter(memory["entity"] for memory in memories if memory["entity"])
    for entity, _ in entities.most_common(1):
        yield f"What do we know about {_called(entity)}?"
    weighty = sorted(memories, key=_weight, reverse=True)
    for kind in MemoryType:
        for memory in islice((m for m in weighty if m["type"] == kind and m["entity"]), 1):
            yield _of(memory)
    for memory in weighty:
        yield _of(memory) if memory["entity"] else memory["text"]


def _weight(memory: Json) -> tuple[bool, float]:
    """A value of a few words can be asked for; one word is too common, a sentence too long."""
    return 3 <= len((memory["value"] or "").split()) < WORDS_MAX, memory["importance"]


def _of(memory: Json) -> str:
    attribute = memory["attribute"]
    said = "" if attribute in _VAGUE else f"{attribute.replace('_', ' ')} "
    value = " ".join(memory["value"].split()[:WORDS_MAX])
    return f"{_called(memory['entity'])}: {said}{value}?"


def _called(entity: str) -> str:
    return f"the {entity}" if entity in ("user", "team") else entity
