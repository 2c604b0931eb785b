"""The extractor that needs no model: reads a passage turn by turn and picks the best statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from recall_server.domain.attributes import normal_attribute, normal_entity, normal_value
from recall_server.domain.importance import importance
from recall_server.domain.model import Candidate, Extraction, Fact, Span, Turn
from recall_server.providers.extraction import Extractor, Passage
from recall_server.providers.rules import sentences as gate
from recall_server.providers.rules.clauses import parse
from recall_server.providers.rules.dates import When, find_when
from recall_server.providers.rules.declarations import declarations
from recall_server.providers.rules.drafts import Draft, addresses_someone
from recall_server.providers.rules.openings import clauses, opened
from recall_server.providers.rules.sentences import Sentence
from recall_server.providers.rules.statements import statements
from recall_server.providers.rules.subjects import Subject, Voice
from recall_server.providers.rules.verbs import FORMS, word_set
from recall_server.providers.rules.wording import without

CANDIDATES_MAX = 5
PASSAGE_CHARS = 1_200
SPEAKERS_MAX = 50
NAME = "rules/1"
_SILENT = word_set("assistant ai bot model agent system tool claude chatgpt gpt gemini copilot")
_USERS = word_set("user human me customer client you")
_AHEAD = re.compile(
    r"\b(?:decided to|agreed to|will|'ll|going to|gonna|plan\w*|want|hope|hoping|next|tomorrow"
    r"|upcoming|due|deadline|by|scheduled|starting|'?d (?:love|like)|(?:am|is|are) \w+ing|meeting"
    r"|appointment|interview|exam)\b",
    re.IGNORECASE,
)
_LOOKS_PRESENT = word_set("was were had did quit cut hit put set read")
_YEARLY = re.compile(r"\b(?:birthday|anniversary|born)\b", re.IGNORECASE)
_CHANGED = re.compile(r"\bchanged? (?:my|our) minds?\b|\bchange of plans?\b", re.IGNORECASE)
_CORRECTS = re.compile(
    r"^(?:no,? )?actually,|\bactually (?:prefer|use|live|work)\w*\b.*\bnow\b"
    r"|\b(?:correction:|(?:scratch|strike) that\b|no longer\b|any ?more\b|not any longer\b"
    r"|on second thought\b|i was wrong\b|i misspoke\b)",
    re.IGNORECASE,
)
# What a sentence may begin with that tells of the circumstances: "During Thanksgiving, we ..."
_SETTING = re.compile(
    r"(?:during|on|at|in|before|after|with) (?!(?:a |an |the |my |another |some )?(?:good |great "
    r"|different |other |side |same )?(?:note|fact|general|way|time|moment|first|end|top|hand|side"
    r"|opinion|case|course|least|last|news|addition|reality|that|this|all|short|my mind|heart"
    r"|hindsight|meantime|future|past|day|love)\b)[\w' -]{3,40}",
    re.IGNORECASE,
)


class RulesExtractor(Extractor):
    """Finds what is plainly stated, with patterns only: no network, no model, no state."""

    @property
    def name(self) -> str:
        return NAME

    @property
    def passage_chars(self) -> int:
        return PASSAGE_CHARS

    async def extract(self, passage: Passage) -> Extraction:
        return Extraction(candidates=_chosen(list(_found(passage))), extractor=NAME)

    async def close(self) -> None:
        """Nothing is held open."""


def _found(passage: Passage) -> Iterator[Candidate]:
    vocatives = _vocatives(passage.turns)
    for turn in passage.turns:
        voice = _voice(turn.speaker)
        said = passage.text[turn.span.start : turn.span.end]
        if voice is not None and not gate.ORDERS.search(said):
            yield from _of_turn(said, turn, voice, vocatives, turn.said_at or passage.occurred_at)


def _voice(speaker: str | None) -> Voice | None:
    """Who "I" is; None for the assistant, whose words are no facts about anybody."""
    if speaker is None:
        return Voice()
    words = speaker.lower().split()
    if words[0] in _SILENT or words[-1] in ("assistant", "bot", "agent"):
        return None
    return Voice() if words[0] in _USERS else Voice(speaker, speaker, named=True)


def _of_turn(
    said: str, turn: Turn, voice: Voice, vocatives: re.Pattern[str], base: datetime
) -> Iterator[Candidate]:
    last: Subject | None = None
    kept: list[Candidate] = []
    corrects = False
    before = 0
    for sentence in gate.sentences(gate.masked(said), turn.span.start):
        if gate.takes_back(sentence.text) and len(kept) > before:
            del kept[before:]
        corrects = corrects or bool(
            gate.takes_back(sentence.text) or _CHANGED.search(sentence.text)
        )
        if gate.states_nothing(sentence.text):
            continue
        found, last = _of_sentence(sentence, voice, last, vocatives, base)
        if found:
            before = len(kept)
            marked = corrects or bool(_CORRECTS.search(sentence.text))
            kept += [_candidate(d, sentence, marked=marked) for d in found]
            corrects = False
    yield from kept


def _of_sentence(
    sentence: Sentence,
    voice: Voice,
    last: Subject | None,
    vocatives: re.Pattern[str],
    base: datetime,
) -> tuple[list[Draft], Subject | None]:
    text = vocatives.sub("", sentence.text)
    whole = list(declarations(text, voice)) or list(declarations(opened(text), voice))
    if whole:
        return whole, last
    drafts: list[Draft] = []
    earlier: When | None = None
    setting = ""
    for clause in clauses(text):
        plain = opened(clause)
        if _SETTING.fullmatch(plain) and not find_when(plain, base, past=True):
            setting = f" {plain[0].lower()}{plain[1:]}"
            continue
        plain, setting = plain + setting, ""
        if gate.is_doubtful(plain):
            continue
        past = _is_past(plain) and not _AHEAD.search(plain)
        when = None if _YEARLY.search(plain) else find_when(plain, base, past=past)
        bare = opened(without(plain, when))
        # "Last week, I ...": the time stands before the clause, and holds for the deeds in it.
        earlier = when or earlier
        if addresses_someone(bare):
            continue
        for parsed in parse(bare, voice, last):
            if parsed.subject.kind in ("name", "owned"):
                last = parsed.subject
            time = when or (earlier if parsed.tense == "past" else None)
            drafts.extend(statements(parsed, voice, time))
    return drafts, last


def _is_past(clause: str) -> bool:
    """Whether a clause tells of the past, so that "on Monday" is the one behind."""
    for word in clause.lower().split()[:12]:
        forms = FORMS[word].forms if word in FORMS else frozenset[str]()
        regular = len(word) > 4 and word.endswith("ed")
        if word in _LOOKS_PRESENT or regular or ("past" in forms and "base" not in forms):
            return True
    return False


def _vocatives(turns: tuple[Turn, ...]) -> re.Pattern[str]:
    """Finds the names of those who take part, where one of them is spoken to: ", Maria!"."""
    speakers = sorted({turn.speaker for turn in turns if turn.speaker})[:SPEAKERS_MAX]
    names = {re.escape(name) for speaker in speakers for name in (speaker, speaker.split()[0])}
    # Longest first: "Maria Lopez" is not to be left as "Lopez".
    known = "|".join(sorted(names, key=len, reverse=True)) or "(?!)"
    return re.compile(rf", (?:{known})(?=[.!]*$|!|,)")


def _candidate(draft: Draft, sentence: Sentence, *, marked: bool) -> Candidate:
    return Candidate(
        text=draft.text,
        type=draft.type,
        span=Span(sentence.start, sentence.end),
        fact=Fact(draft.entity, draft.attribute, draft.value, draft.negated),
        confidence=draft.confidence,
        importance=importance(sentence.text),
        valid_from=draft.valid_from,
        correction=draft.correction or marked,
        replaces=draft.replaces,
    )


def _chosen(found: list[Candidate]) -> tuple[Candidate, ...]:
    unique: dict[tuple[str, ...], int] = {}
    for at, candidate in enumerate(found):
        fact = candidate.fact
        assert fact is not None
        key = (normal_entity(fact.entity), normal_attribute(fact.attribute),
               normal_value(fact.value), str(fact.negated))  # fmt: skip
        if key not in unique or candidate.confidence > found[unique[key]].confidence:
            unique[key] = at
    ranked = sorted(
        unique.values(), key=lambda at: (-found[at].confidence, -found[at].importance, at)
    )
    return tuple(found[at] for at in sorted(ranked[:CANDIDATES_MAX]))
