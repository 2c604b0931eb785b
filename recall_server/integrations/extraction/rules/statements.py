"""What a sentence or a clause states: every kind of reading in turn, the surest first."""

from __future__ import annotations

from collections.abc import Iterator

from recall_server.integrations.extraction.rules.copula import being
from recall_server.integrations.extraction.rules.corrections import correction
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.decisions import decision
from recall_server.integrations.extraction.rules.deeds import deed
from recall_server.integrations.extraction.rules.drafts import Draft
from recall_server.integrations.extraction.rules.habits import ability, activity, habit, undertaking
from recall_server.integrations.extraction.rules.orders import called, order
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.passives import passive
from recall_server.integrations.extraction.rules.plans import plan, wish
from recall_server.integrations.extraction.rules.possessions import possession
from recall_server.integrations.extraction.rules.procedures import procedure, process, required
from recall_server.integrations.extraction.rules.relations import ended, relation
from recall_server.integrations.extraction.rules.subjects import Voice

_OF_SENTENCES = (process, called, correction, decision, order, procedure, required)
_OF_CLAUSES = (
    habit, wish, relation, passive, being, possession, plan, undertaking, deed, activity, ability,
    ended,
)  # fmt: skip


def declared(sentence: str, voice: Voice) -> Iterator[Draft]:
    """What a whole sentence declares, where it has a form of its own; at most one."""
    text = sentence.strip(" .!*_")
    for read in _OF_SENTENCES:
        draft = read(text, voice)
        if draft is not None:
            yield draft
            return


def statements(clause: Clause, voice: Voice, when: When | None) -> Iterator[Draft]:
    """What a clause states; at most one."""
    for read in _OF_CLAUSES:
        draft = read(clause, voice, when)
        if draft is not None:
            yield draft
            return
