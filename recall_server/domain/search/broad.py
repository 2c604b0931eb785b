"""Questions about all that is remembered, or all of somebody: "What do you know about Ana?". Pure.

No memory says "know" or "preferences", so the words of such a question find nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.memory import MemoryType
from recall_server.domain.search.index_entry import Words
from recall_server.domain.text.terms import SPEAKER, terms

# Two words may name a person; more ask for something.
TOPIC_TERMS_MAX = 2

# `_ASKING` are verbs of a question to a memory. `_FILLING` are other words that name nothing.
_ASKING = frozenset(
    terms(
        """
        know knows known remember remembers remembered recall recalls tell tells told say says said
        talk talked discuss discussed mention mentioned learn learned happen happened show list
        weißt wissen merken gemerkt erinnerst erzähl erzähle erzählt gesagt gesprochen passiert
        sabes sabe recuerdas recuerda dime cuéntame háblame dije dijo dicho hablamos pasó
        sais sais-tu sait souviens parle parle-moi parle-nous dis-moi raconte raconte-moi dit parlé
        passé moi nous de
        """
    )
)
_FILLING = frozenset(
    terms(
        """
        user human everything anything something info information fact facts detail details memory
        memories stored saved noted overview summary summarize summarise profile background new
        news recent recently lately latest last past so far please give get find important made
        this today yesterday day week weekend month year
        alles etwas informationen fakten erinnerungen gespeichert überblick zusammenfassung profil
        hintergrund neues zuletzt wichtiges wichtig wurden getroffen heute gestern
        welche letzte woche monat jahr
        todo información datos recuerdos resumen perfil nuevo últimamente importante tomado hoy
        ayer semana pasada mes año
        tout informations faits souvenirs résumé profil nouveau récemment dernièrement important
        prises aujourd'hui hier semaine dernière mois année
        """
    )
)
_TYPES: Mapping[MemoryType, frozenset[str]] = {
    MemoryType.PREFERENCE: frozenset(
        terms("preference preferences vorlieben präferenzen preferencias gustos préférences goûts")
    ),
    MemoryType.DECISION: frozenset(
        terms(
            "decision decisions decide decided entscheidung entscheidungen entschieden decisión "
            "decisiones decidimos decidido décision décisions décidé"
        )
    ),
    MemoryType.PROCEDURE: frozenset(
        terms("procedure procedures abläufe procedimientos procédure procédures")
    ),
}
TYPES = tuple(MemoryType)


class Broad(NamedTuple):
    """A question about all memories of some `types` (none: of any), or about all that is said of a
    `topic`, a name mostly.
    """

    types: frozenset[MemoryType]
    topic: tuple[str, ...] = ()

    def about(
        self, words: Words, columns: Mapping[str, NDArray[Any]], named: Collection[str]
    ) -> NDArray[np.bool_]:
        """Return which items the question asks for. `words` has how often each item has each term
        of the topic and of `named`, the speakers that the question names.
        """
        types = columns["type"]
        found: NDArray[np.bool_] = np.ones(len(types), np.bool_)
        if self.types:
            found = np.isin(types, [TYPES.index(one) for one in self.types])
        nothing = np.zeros(len(types), np.int64)
        for term in self.topic:
            speakers = [one for one in named if term in terms(one.removeprefix(SPEAKER))]
            found &= np.any(
                [words.times.get(one, nothing) > 0 for one in (term, *speakers)], axis=0
            )
        return found


def broad_of(asked: Sequence[str]) -> Broad | None:
    """Return what a question with these terms asks for, if that is all of something, else None."""
    types = frozenset(name for name, said in _TYPES.items() if said.intersection(asked))
    of_types = {term for name in types for term in _TYPES[name]}
    topic = tuple(term for term in asked if term not in _ASKING and term not in of_types)
    if asked and set(topic) <= _FILLING:
        return Broad(types)
    if len(topic) < len(asked) and len(topic) <= TOPIC_TERMS_MAX:
        return Broad(types, topic)
    return None
