"""Reads a passage turn by turn: who speaks, what was asked before, what a sentence unsays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.attributes import normal_attribute, normal_entity
from recall_server.domain.episode import Span, Turn
from recall_server.domain.extraction import Candidate
from recall_server.domain.importance import importance
from recall_server.domain.memory import Fact
from recall_server.integrations.extraction.extractor import Passage
from recall_server.integrations.extraction.rules import gates
from recall_server.integrations.extraction.rules.answers import Question, asked, spelt_out
from recall_server.integrations.extraction.rules.clauses import clauses, opened
from recall_server.integrations.extraction.rules.corrections import CORRECTS, put_right
from recall_server.integrations.extraction.rules.dates import When, dated
from recall_server.integrations.extraction.rules.drafts import Draft, addresses_someone
from recall_server.integrations.extraction.rules.parsing import Clause, parse
from recall_server.integrations.extraction.rules.sentences import Sentence, masked, sentences
from recall_server.integrations.extraction.rules.statements import declared, statements
from recall_server.integrations.extraction.rules.subjects import Subject, Voice
from recall_server.integrations.extraction.rules.verbs import FORMS, word_set

_SPEAKERS_MAX = 50
_REMEMBERED = 12
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
_PLAIN_STATE = re.compile(
    r"(?:in|at|on|every|due|called|named|written|hosted|owned|maintained|stored|run|deployed|based"
    r"|scheduled|sent|\d)\b"
)
_CHANGED = re.compile(r"\bchanged? (?:my|our) minds?\b|\bchange of plans?\b", re.IGNORECASE)
# What a sentence may begin with that tells of the circumstances: "During Thanksgiving, we ..."
_SETTING = re.compile(
    r"(?:during|on|at|in|before|after|with) (?!(?:a |an |the |my |another |some )?(?:good |great "
    r"|different |other |side |same )?(?:note|fact|general|way|time|moment|first|end|top|hand|side"
    r"|opinion|case|course|least|last|news|addition|reality|that|this|all|short|my mind|heart"
    r"|hindsight|meantime|future|past|day|love)\b)[\w' -]{3,40}",
    re.IGNORECASE,
)


def stated(passage: Passage) -> Iterator[Candidate]:
    """All that a passage states, in its order."""
    vocatives = _vocatives(passage.turns)
    known: list[Draft] = []
    question: Question | None = None
    for turn in passage.turns:
        voice = _voice(turn.speaker)
        said = passage.text[turn.span.start : turn.span.end]
        if gates.ORDERS.search(said):
            question = None
            continue
        if voice is not None:
            base = turn.said_at or passage.occurred_at
            yield from _TurnReader(voice, base, vocatives, known, question).read(said, turn)
        question = asked(said)


def _voice(speaker: str | None) -> Voice | None:
    """Who "I" is; None for the assistant, whose words are no facts about anybody."""
    if speaker is None:
        return Voice()
    words = speaker.lower().split()
    if words[0] in _SILENT or words[-1] in ("assistant", "bot", "agent"):
        return None
    return Voice() if words[0] in _USERS else Voice(speaker, speaker, named=True)


def _vocatives(turns: tuple[Turn, ...]) -> re.Pattern[str]:
    """Finds the names of those who take part, where one of them is spoken to: ", Maria!"."""
    speakers = sorted({turn.speaker for turn in turns if turn.speaker})[:_SPEAKERS_MAX]
    names = {re.escape(name) for speaker in speakers for name in (speaker, speaker.split()[0])}
    # Longest first: "Maria Lopez" is not to be left as "Lopez".
    known = "|".join(sorted(names, key=len, reverse=True)) or "(?!)"
    return re.compile(rf", (?:{known})(?=[.!]*$|!|,)")


@dataclass
class _TurnReader:
    """Reads the sentences of one turn, remembering whom and what the last ones were about."""

    voice: Voice
    base: datetime
    vocatives: re.Pattern[str]
    known: list[Draft]  # what the passage has stated so far, by anybody
    question: Question | None
    last: Subject | None = None
    fresh: bool = False  # whether `last` stood in the sentence just before
    kept: list[tuple[Draft, Sentence]] = field(default_factory=list)

    def read(self, said: str, turn: Turn) -> Iterator[Candidate]:
        corrects = False
        before = 0
        for at, sentence in enumerate(sentences(masked(said), turn.span.start)):
            if gates.takes_back(sentence.text) and len(self.kept) > before:
                del self.kept[before:]
            corrects = corrects or bool(
                gates.takes_back(sentence.text) or _CHANGED.search(sentence.text)
            )
            if gates.states_nothing(sentence.text):
                continue
            drafts = self._sentence(sentence.text)
            if not drafts and self.question and at < 2:
                drafts = self._answer(sentence.text)
            if drafts:
                before = len(self.kept)
                marked = corrects or bool(CORRECTS.search(sentence.text))
                self._keep(drafts, sentence, marked=marked)
                corrects = False
        yield from (_candidate(draft, sentence) for draft, sentence in self.kept)

    def _keep(self, drafts: list[Draft], sentence: Sentence, *, marked: bool) -> None:
        for found in drafts:
            draft = replace(found, correction=found.correction or marked)
            draft = _in_place_of([one for one, _ in self.kept[-2:]], draft)
            self.kept.append((draft, sentence))
            self.known.append(draft)
        del self.known[:-_REMEMBERED]

    def _sentence(self, said: str) -> list[Draft]:
        text = self.vocatives.sub("", said)
        plain = opened(text)
        whole = list(declared(text, self.voice)) or list(declared(plain, self.voice))
        whole = [put_right(draft, self.known) for draft in whole]
        if whole:
            return whole
        drafts: list[Draft] = []
        earlier: When | None = None
        setting = ""
        self.fresh, fresh = False, self.fresh
        last = self.last if self.last and (fresh or not self.last.inanimate) else None
        for clause in clauses(text):
            plain = opened(clause)
            if _SETTING.fullmatch(plain) and not dated(plain, self.base, past=True)[1]:
                setting = f" {plain[0].lower()}{plain[1:]}"
                continue
            plain, setting = plain + setting, ""
            if gates.is_doubtful(plain):
                continue
            bare, when = self._dated(plain)
            # "Last week, I ...": the time stands before the clause, and holds for its deeds.
            earlier = when or earlier
            if addresses_someone(bare):
                continue
            for parsed in parse(bare, self.voice, last):
                if parsed.weak and parsed.subject.inanimate and _judges(parsed):
                    continue
                if parsed.subject.kind in ("name", "owned", "thing"):
                    self.last = last = parsed.subject
                    self.fresh = True
                time = when or (earlier if parsed.tense == "past" else None)
                drafts.extend(statements(parsed, self.voice, time))
        return drafts

    def _dated(self, plain: str) -> tuple[str, When | None]:
        if _YEARLY.search(plain):
            return plain, None
        past = _is_past(plain) and not _AHEAD.search(plain)
        bare, when = dated(plain, self.base, past=past)
        return opened(bare), when

    def _answer(self, said: str) -> list[Draft]:
        """What a fragment says in the light of the question that it answers."""
        assert self.question is not None
        statement = spelt_out(self.question, self.vocatives.sub("", said))
        found = self._sentence(statement) if statement else []
        return [replace(draft, confidence=min(draft.confidence, 0.8)) for draft in found]


def _in_place_of(before: list[Draft], draft: Draft) -> Draft:
    """After "I used to live in Rome", "now I live in Bern" says what it has replaced."""
    for old in reversed(before):
        ended = old.negated and not draft.negated and draft.replaces is None
        if ended and _key(old) == _key(draft):
            return replace(draft, correction=True, replaces=old.value)
        if ended and (old.attribute, draft.attribute) == ("located_in", "lives_in"):
            # "Our office is no longer in Soho, we moved to Hackney."
            return replace(draft, entity=old.entity, attribute=old.attribute, correction=True,
                           replaces=old.value)  # fmt: skip
    return draft


def _judges(clause: Clause) -> bool:
    """Whether "it is ..." only says how something is liked; what it stands for is then a guess."""
    return clause.lemma == "be" and not _PLAIN_STATE.match(clause.rest)


def _key(draft: Draft) -> tuple[str, str]:
    return normal_entity(draft.entity), normal_attribute(draft.attribute)


def _is_past(clause: str) -> bool:
    """Whether a clause tells of the past, so that "on Monday" is the one behind."""
    for word in clause.lower().split()[:12]:
        forms = FORMS[word].forms if word in FORMS else frozenset[str]()
        regular = len(word) > 4 and word.endswith("ed")
        if word in _LOOKS_PRESENT or regular or ("past" in forms and "base" not in forms):
            return True
    return False


def _candidate(draft: Draft, sentence: Sentence) -> Candidate:
    return Candidate(
        text=draft.text,
        type=draft.type,
        span=Span(sentence.start, sentence.end),
        fact=Fact(draft.entity, draft.attribute, draft.value, draft.negated),
        confidence=draft.confidence,
        importance=importance(sentence.text),
        valid_from=draft.valid_from,
        correction=draft.correction,
        replaces=draft.replaces,
    )
