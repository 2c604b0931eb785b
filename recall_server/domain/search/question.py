"""A question as ranking uses it: its terms, the speakers that it names, and how like its words
those of a text are. Pure.

Words are compared by vectors of single words: "slept" is like "sleep", and "weight" like "weigh".
The vector of a whole text tells what it is about, and says little of a single word in it.

A broad question is about all that is remembered, or all of somebody: "What do you know about Ana?".
No memory says "know" or "preferences", so the words of such a question find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.memory import MemoryType
from recall_server.domain.search.fact_question import FactQuestion, fact_question
from recall_server.domain.search.index_entry import Words
from recall_server.domain.text.dates import TEXT_CHARS_MAX
from recall_server.domain.text.terms import (
    SPEAKER,
    STOP,
    asked_terms,
    asked_values,
    folded,
    language_of,
    other_forms,
    speaker_terms,
    terms,
    tokens_of,
    unspaced,
    written,
)

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


TERMS_MAX = 64
# A name in more items than this, and in more than this share of them, is mostly one of a title. In
# 25 texts with 271 questions, .4 points more of the answers are shown if these are left out of the
# vector of a question. LoCoMo has as many, and its R@10 is as before.
COMMON_ABOVE, COMMON_SHARE = 15, 0.03
NAMES_MAX = 32

# The speakers that "I" may stand for.
_SELF = frozenset(f"{SPEAKER}{role}" for role in ("user", "human", "me"))
ROLES = frozenset({*_SELF, *(f"{SPEAKER}{role}" for role in ("assistant", "ai", "system"))})
_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself)\b", re.IGNORECASE)
# Endings that are no part of a name: "Ana's", "Ana'll"; and "Chris' son".
_JOINED = re.compile(r"'(?:s|d|ll|re|ve|m)$", re.IGNORECASE)
# In French: "d'Inès".
_ELIDED = re.compile(r"(?:[djlmnst]|qu)'(?=[A-ZÀ-Þ])")
# A name of a file, a part or a version.
_CODED = re.compile(r"[\d_/\\]|\.(?=[a-z])")
_GENITIVE = re.compile(r"'s\b|(?<=s)'(?=\s+\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """A question: `asked` are its terms, `names` the terms of speakers that it may name, `values`
    those of the kinds of value that it asks for, `forms` those of other forms of its words.
    `broad` is what a broad question asks for; if it has a topic, only that is `asked`. `language`
    is that of `language_of`, `written_names` are the words of its beginning that may be names.
    `fact` is the fact that it asks for, if it asks for nothing else.
    """

    text: str
    language: str
    written_names: Sequence[Name]
    asked: tuple[str, ...]
    names: tuple[str, ...]
    broad: Broad | None = None
    values: frozenset[str] = frozenset()
    forms: Mapping[str, Collection[str]] = field(default_factory=dict)
    fact: FactQuestion | None = None

    @staticmethod
    def parse(text: str, *, may_be_broad: bool = True) -> Question:
        language = language_of(text)
        asked = tuple(asked_terms(text, language))[:TERMS_MAX]
        wanted = broad_of(text[:TEXT_CHARS_MAX], asked) if may_be_broad else None
        if wanted is not None:
            asked = wanted.topic or asked
        read = text[:TEXT_CHARS_MAX]  # as for dates
        names = dict.fromkeys(sorted(_SELF) if _FIRST_PERSON.search(read) else ())
        written_names = tuple(_names(read))
        for name in written_names:
            names |= dict.fromkeys(name.terms)
            if len(names) >= NAMES_MAX:
                break
        others = other_forms(text, language) if language else {}
        forms = {term: some for term, some in others.items() if term in asked}
        return Question(
            text,
            language,
            written_names,
            asked,
            tuple(names)[:NAMES_MAX],
            broad=wanted,
            values=asked_values(read),
            forms=forms,
            fact=fact_question(text) if may_be_broad else None,
        )

    @property
    def terms(self) -> list[str]:
        """All terms that have a say, or would have in another form of the word."""
        others = sorted(term for some in self.forms.values() for term in some)
        return [*self.asked, *others, *self.names, *sorted(self.values)]

    @cached_property
    def people(self) -> frozenset[str]:
        """The terms of the names in the question, and of other words with a capital letter, but not
        of "App.vue". Those of a question in German, where every noun has one, are none.
        """
        text = self.text[:TEXT_CHARS_MAX]
        if text == text.lower() or self.language == "de":
            return frozenset()
        first = next(written(text), None)
        begun = first.end() if first else 0
        said = {
            one for name in self.written_names
            if name.start >= begun and not _CODED.search(text, name.start, name.end)
            for one in name.terms
        }  # fmt: skip
        return frozenset(term for one in said for term in terms(one.removeprefix(SPEAKER)))

    def as_written(self, frequencies: Mapping[str, int]) -> Question:
        """Return the question with each word that no text has in the form that most texts have."""
        asked = dict.fromkeys(
            max((term, *sorted(self.forms.get(term, ()))), key=lambda one: frequencies.get(one, 0))
            if term not in frequencies
            else term
            for term in self.asked
        )
        return replace(self, asked=tuple(asked))

    def common_names(self, frequencies: Mapping[str, int], documents: int) -> frozenset[str]:
        """Return the terms of the names that many items have, if more than names is asked for: in
        the title of a text they are in all of its memories, and tell none of them from the others.
        """
        if self.people.issuperset(self.asked):
            return frozenset()
        least = max(COMMON_ABOVE, COMMON_SHARE * documents)
        return frozenset(one for one in self.people if frequencies.get(one, 0) > least)

    def in_first_person(
        self, speakers: Collection[str], common: Collection[str] = frozenset()
    ) -> str:
        """Return the question as one of these speakers would ask it about themselves: "What did
        Ana's son say" becomes "What did my son say". A name draws a vector to every text with that
        name; without names, MiniLM found 58.1 instead of 38.6 % of the evidence in LoCoMo. Roles
        stay. The names of `common` are left out.
        """
        people = set(speakers) - ROLES
        said: list[str] = []
        end = 0
        for name in self.written_names if people or common else ():
            if people.isdisjoint(name.terms):
                if not name.is_of(common):
                    continue
                said.append(self.text[end : name.start])
                end = name.end
                continue
            between = self.text[end : name.start]
            if said[-1:] == ["I"] and between.isspace():
                said.pop()  # "Mary Ann" is one speaker
            else:
                said.append(between)
            said.append("my" if name.genitive else "I")
            end = name.end
        return "".join(said) + self.text[end:]


class Name(NamedTuple):
    """A word that may be a name, with the terms of the speaker that it may name. `start` to `end`
    includes the ending of a genitive.
    """

    terms: list[str]
    start: int
    end: int
    genitive: bool

    def is_of(self, words: Collection[str]) -> bool:
        """Return whether one of these terms of words is in the name."""
        return any(term in words for one in self.terms for term in terms(one.removeprefix(SPEAKER)))


def _names(text: str) -> Iterator[Name]:
    """Yield the words that may be names. In a text with capital letters, "agent-1" may still be
    one, but "mark" may not.
    """
    lower, known = text == text.lower(), dict[str, list[str]]()
    text = text.replace("’", "'")
    for word in written(text):
        name = _JOINED.sub("", word[0])
        start = word.start()
        if elided := _ELIDED.match(name):
            name, start = name[elided.end() :], start + elided.end()
        ordinary = name[0].islower() and name.isalpha()
        if name[0].isalpha() and (lower or not ordinary):
            end = start + len(name)
            genitive = _GENITIVE.match(text, end)
            end = genitive.end() if genitive else end
            if name not in known:
                known[name] = speaker_terms(name)
            yield Name(known[name], start, end, genitive is not None)


# How much of a text is compared.
WORDS_MAX = 200
# Below this, a text says nothing of what a question asks beside its names. With .3, 53 instead of
# 39 of 68 questions about nothing stored have weak evidence, most of which name somebody of the
# text; of 762 questions of LoCoMo with an answer, 80 instead of 74.
SAID_MIN = 0.3

WordVectors = Callable[[Sequence[str]], NDArray[np.float32]]
Row = NDArray[np.float64]


class Alike(NamedTuple):
    """How like a question each of some texts is. `beside_names`: without the names in the question;
    1 if it names nobody, or asks for nothing else.
    """

    whole: Row
    beside_names: Row


def alike(
    question: str,
    weights: Mapping[str, float],
    names: Collection[str],
    texts: Sequence[str],
    vectors: WordVectors,
) -> Alike | None:
    """Return how near the nearest word of each text is to each word of the question: the mean,
    weighted by `weights` of their terms. `names`: the terms of names. None if it has no words.
    """
    first = {word: of[0] for word in words(question) if (of := terms(word))}
    asked = {word: weights[term] for word, term in first.items() if term in weights}
    if not asked:
        return None
    whole = np.array(list(asked.values()))
    rest = whole * [first[word] not in names for word in asked]
    said = [words(text) for text in texts]
    place = {word: at for at, word in enumerate(dict.fromkeys(chain(*said)))}
    near = np.zeros((len(texts), len(asked)))
    if place:
        likeness = vectors(list(place)).dot(vectors(list(asked)).T).clip(0.0, 1.0)
        here = [at for at, found in enumerate(said) if found]
        begun = [0, *accumulate(len(said[at]) for at in here)][:-1]
        near[here] = np.maximum.reduceat(likeness[[place[word] for word in chain(*said)]], begun)
    named = 0.0 < rest.sum() < whole.sum()
    beside = near.dot(rest) / rest.sum() if named else np.ones(len(texts))
    return Alike(near.dot(whole) / whole.sum(), beside)


def words(text: str) -> list[str]:
    """Return the distinct words of a text, folded, without function words."""
    return [word for word in dict.fromkeys(tokens_of(folded(text))) if word not in STOP][:WORDS_MAX]
