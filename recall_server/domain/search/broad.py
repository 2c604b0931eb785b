"""Questions about all that is remembered, or all of somebody: "What do you know about Ana?". Pure.

No memory says "know" or "preferences", so the words of such a question find nothing.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.memory import MemoryType
from recall_server.domain.search.index_entry import Words
from recall_server.domain.text.terms import SPEAKER, terms, unspaced

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

# The same in Chinese and Japanese, in which words are not apart. What is left over is a name.
_ASKING_WORDS = re.compile(
    r"知道|记得|记住|记了|了解|告诉|说说|讲讲|谈|说过|总结|列出|有什么|有哪些|什么|哪些"
    r"|知って|覚えて|教えて|話し|まとめ|聞かせて|何を|何が"
)
_FILLING_WORDS = re.compile(
    r"[你您我]们?|还|都|关于|对于|对|所有|全部|一切|一下|记忆|信息|事情?|最近|新的?|今天|昨天|上周|本周|这周"
    r"|上个月|重要|用户|请|给|做|过|的|了|吗|呢|吧|有|是|些"
    r"|私|僕|俺|自分|あなた|ユーザー|について|こと|情報|記憶|最近|今日|昨日|先週|今週|先月|重要|新しい|すべて|全て"
    r"|いる|います|いた|ました|ます|まし|した|して|ください|下さい|くれ|ある|あり|です|だ"
    r"|[のをはがにでともかなたいるよね]|[\s\W]"
)
_TYPES_WORDS = {
    MemoryType.PREFERENCE: re.compile("偏好|喜好|好み"),
    MemoryType.DECISION: re.compile("决定|決定|決めた?"),
    MemoryType.PROCEDURE: re.compile("流程|步骤|手順"),
}
_NAME_CHARS_MAX = 6
# Without one of these, what is left over is asked for: "猫叫什么" asks for a name.
_ABOUT = re.compile("关于|知道|记得|了解|告诉|说说|讲讲|について|のこと")


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


def broad_of(question: str, asked: Sequence[str]) -> Broad | None:
    """Return what a question with the terms `asked` asks for, if that is all of something, else
    None.
    """
    if unspaced(question):
        return _broad_unspaced(question)
    types = frozenset(name for name, said in _TYPES.items() if said.intersection(asked))
    of_types = {term for name in types for term in _TYPES[name]}
    topic = tuple(term for term in asked if term not in _ASKING and term not in of_types)
    if asked and set(topic) <= _FILLING:
        return Broad(types)
    if len(topic) < len(asked) and len(topic) <= TOPIC_TERMS_MAX:
        return Broad(types, topic)
    return None


def _broad_unspaced(question: str) -> Broad | None:
    types = frozenset(name for name, said in _TYPES_WORDS.items() if said.search(question))
    rest = question
    for said in (*(_TYPES_WORDS[name] for name in types), _ASKING_WORDS):
        rest = said.sub(" ", rest)
    if not types and rest == question:
        return None
    topic = _FILLING_WORDS.sub(" ", rest).split()
    if not topic:
        return Broad(types)
    if len(topic) == 1 and len(topic[0]) <= _NAME_CHARS_MAX and _ABOUT.search(question):
        return Broad(types, tuple(dict.fromkeys(terms(topic[0]))))
    return None
