"""Reads a passage turn by turn, and turns its pieces into candidates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC

from recall_server.domain.episode import Span, Turn
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import MemoryType, importance
from recall_server.domain.text.dates import began, start_of
from recall_server.integrations.extraction.extractor import Passage, candidates_max
from recall_server.integrations.extraction.rules.cutting import (
    BOLD,
    LEAD_IN,
    NAME,
    Clause,
    Kind,
    Piece,
    coordinated,
    entry,
    key_and_value,
    listed,
    parts,
    pieces,
    with_columns,
    with_steps,
)
from recall_server.integrations.extraction.rules.facts import (
    Found,
    Speaker,
    corrected,
    find_fact,
    of_pair,
)
from recall_server.integrations.extraction.rules.headings import (
    Headings,
    Paragraph,
    breaks,
    day_of,
    has_date,
    name_first,
)
from recall_server.integrations.extraction.rules.judging import (
    Setting,
    Verdict,
    chosen,
    is_whole,
    judge,
    says_nothing,
    size,
    specifics,
)
from recall_server.integrations.extraction.rules.language import (
    Table,
    detect,
    pattern,
    table,
    titles,
)
from recall_server.integrations.extraction.rules.speakers import Voice, labels, speaker_of, speaks
from recall_server.integrations.extraction.rules.wording import (
    Context,
    When,
    cleaned,
    dated,
    stand_alone,
)

TEXT_CHARS_MAX = 500
_BEFORE_CHARS_MAX = 1_500
_ANSWER_WORDS_MAX = 14
_NAMES_MAX = 50
_SURE = 0.55
_LISTED = 4.0
# So many labels that each occur once are keys, even before whole sentences.
_KEYS_MIN = 3
_NEW_WORDS_MAX = 6
# Where the cue of a correction begins, at the latest.
_CUE_MAX = 12
_AROUND = " ,.!:–—-。！，"
# Before "and": "He wrote, Otto and Ida can start" has two subjects in one clause.
_ONE_OF_TWO = re.compile(r"(?:^|, )[A-ZÀ-Þ][\w'’-]*$")


def read(passage: Passage) -> tuple[tuple[Candidate, ...], str | None]:
    """Return the candidates of a passage, and its language; None if that is not supported."""
    said = "\n".join(
        f"{turn.speaker or ''} {passage.text[turn.span.start : turn.span.end]}"
        for turn in passage.turns
    )
    name, _ = detect(said)
    if name is None:
        return (), None
    reader = _Reader(passage, table(name))
    for turn in passage.turns:
        reader.read(turn)
    return reader.chosen(), name


@dataclass
class _Before:
    """The previous piece, which a pronoun or a correction may refer to: its words, and where they
    begin. `at` is its place among the kept candidates, if it was kept.
    """

    text: str
    start: int
    at: int | None = None
    found: Found | None = None


class _Reader:
    """Reads a passage turn by turn; knows the headings, the last question and the last piece."""

    def __init__(self, passage: Passage, language: Table) -> None:
        self.passage = passage
        self.language = self.main = language
        self.kept: list[Candidate | None] = []
        self.headings = Headings()
        self.before: _Before | None = None
        self.question = _Before("", 0)
        self.said: _Before | None = None
        self.said_by: dict[str, _Before] = {}
        self.called: str | None = None
        speakers = {turn.speaker for turn in passage.turns if turn.speaker}
        lines = sum(map(bool, map(str.strip, passage.text[:20_000].split("\n"))))
        self.labels = labels(passage.text, speakers)
        self.notes = self.document = lines > 2 or len(passage.text) > 400
        self.names = {word for one in speakers | self.labels for word in (one, one.split()[0])}
        names = "|".join(map(re.escape, sorted(self.names)[:_NAMES_MAX])) or "(?!)"
        self.spoken_to = re.compile(rf"(?:{names})(?:[,!.] |[，！、])")
        self.keyed = self._keyed(speakers)
        self.day = day_of(passage.text, passage.occurred_at, language) if self.document else None
        self.read_to = 0
        self.opens, self.listed, self.headed, self.tasked = True, False, False, False
        self.named_last = re.compile(rf", (?:{names})(?=[.!?]*$)")
        if passage.turns and not speakers:
            self._headings_before(passage.turns[0].span.start)

    def _keyed(self, labels: set[str]) -> bool:
        """Return whether the labels are keys, such as "Passport: renewed in March": each occurs
        once, and nobody says "I" or "you", asks or answers. One or two sentences are speech.
        """
        said = [self.passage.text[turn.span.start : turn.span.end] for turn in self.passage.turns]
        few = len(said) < _KEYS_MIN
        return len(labels) == len(said) and not any(self._speaks(one, few) for one in said)

    def _speaks(self, said: str, few: bool) -> bool:
        """Return whether words are said to somebody, unlike the value of a key."""
        language = self.language
        opens = pattern(language.name, "openers").match(said) or any(
            language.starts(cue, said) for cue in ("keep.order", "words.pronoun", "drop.greeting")
        )
        to = any(language.has(f"words.{name}", said) for name in ("first", "we", "you"))
        sentence = few and not said[:1].islower() and is_whole(said, language)
        return bool(opens or to or sentence or "?" in said)

    def _headings_before(self, start: int) -> None:
        """Read the headings and the sender before the passage."""
        first = self.passage.text.find("\n")
        title = (0, first if first < min(start, 200) else 0)
        for begin, end in (title, (max(0, start - _BEFORE_CHARS_MAX), start)):
            for piece in pieces(self.passage.text, begin, end, self.language):
                self._head(piece)

    def _head(self, piece: Piece) -> bool:
        """Take a heading, or the sender of a mail. Return False for any other piece."""
        heads = piece.kind in (Kind.HEADING, Kind.SENDER)
        if heads:
            self.headings.add(piece, self.passage.text, self.language)
        return heads

    def read(self, turn: Turn) -> None:
        """Read a turn, and keep the question that it ends with for the next one."""
        text, span = self.passage.text, turn.span
        said = text[span.start : span.end]
        name, sure = detect(said)
        self.language = table(name) if name and sure >= _SURE else self.main
        if name is None and sure >= _SURE:
            return
        if breaks(text, self.read_to, span.end):
            self.headings.by_level.clear()
            self.opens = True
        self.read_to = span.end
        found = list(pieces(text, span.start, span.end, self.language))
        if not found:
            return
        if found[0].kind is Kind.SENTENCE or (found[0].kind is Kind.PAIR and not self.headed):
            self.headings.by_level.pop(LEAD_IN, None)
            if self.listed:
                self.headings.by_level.pop(BOLD, None)
        self.listed = found[-1].kind in (Kind.ITEM, Kind.PAIR)
        self.headed = found[-1].kind is Kind.HEADING
        spoken = turn.speaker or not self.labels.isdisjoint(one.key for one in found)
        if self.notes and not spoken:
            found = Paragraph(text, self.language, self.opens).named(found)
        self.opens = False
        labels = [at for at, one in enumerate(found) if one.key in self.labels]
        for first, end in zip([0, *labels], [*labels, len(found)], strict=True):
            part, label = found[first:end], turn.speaker
            if part and first in labels:
                label = part[0].key
                said_from = part[0].end - len(key_and_value(text[part[0].start : part[0].end])[1])
                part[:1] = pieces(text, said_from, part[0].end, self.language)
            if part:
                self._utterance(part, label, turn)

    def _utterance(self, part: list[Piece], label: str | None, turn: Turn) -> None:
        text, speaker = self.passage.text, self._speaker(label, turn)
        self.document = self.notes and label is None
        self.before, self.said, self.tasked = None, None, False
        if speaker is not None and label:
            self.said = self.said_by.get(speaker.shown)
        said = text[part[0].start : part[-1].end]
        user = Speaker("user", self.language.data["user"])
        pair = of_pair(label, said, user, self.language) if label and len(part) == 1 else None
        if pair:
            # "Nombre: Max" looks like a speaker in a text whose lines all have labels.
            clause = Clause(part[0].start, part[0].end, f"{label}: {said}", Kind.PAIR)
            sure = Verdict(5.0, MemoryType.FACT)
            self._keep(clause, sure, Voice(user, turn), heading=user.shown, found=pair)
            return
        if self.keyed and label and speaker and speaker.entity != "user":
            piece = replace(part[0], end=part[-1].end, kind=Kind.PAIR)
            self._pair(piece, f"{label}: {said}", Voice(speaker, turn))
            return
        name = name_first(text, part, self.language) if self.document else ""
        for piece in with_steps(text, part, self.headings.text, self.language):
            if name and piece is not part[0]:
                self.headings.by_level[NAME] = name
            if self._head(piece):
                self.before, speaker = None, self._speaker(label, turn)
            elif speaker is not None:
                self._piece(piece, Voice(speaker, turn))
            self._remember(speaker)
        self.headings.by_level.pop(NAME, None)
        self.question = _Before("", 0)
        last = text[part[-1].start : part[-1].end]
        if last.rstrip().endswith(("?", "？")) and not self.document:
            opened = cleaned(self._opened(0, last)[1])
            self.question = _Before(opened[:1].upper() + opened[1:], part[-1].start)

    def _remember(self, speaker: Speaker | None) -> None:
        if self.before is not None and speaker is not None:
            self.said_by[speaker.shown] = self.before

    def _speaker(self, label: str | None, turn: Turn) -> Speaker | None:
        start = turn.span.start
        line = self.passage.text[max(0, start - 60) : start]
        return speaker_of(label or self.headings.sender, line, self.language)

    def _piece(self, piece: Piece, voice: Voice) -> None:
        text, language = self.passage.text[piece.start : piece.end], self.language
        if language.has("drop.taken_back", text):
            self._take_back()
        if piece.kind is Kind.STEPS:
            steps = Clause(piece.start, piece.end, text, piece.kind)
            sure = Verdict(5.0, MemoryType.PROCEDURE)
            self._keep(steps, sure, voice, heading=self.headings.text)
            return
        if self._answers(piece, text, voice) or self._corrects(piece, text, voice):
            return
        if piece.kind is not Kind.SENTENCE and self.headings.text:
            self.before = None  # "she" is the heading, not the item before
        if piece.kind is Kind.PAIR:
            self._pair(piece, text, voice)
        else:
            start, opened = self._opened(piece.start, text)
            cue = language.search("drop.correction", opened)
            if cue and cue.start() > 2 and opened[: cue.start()].rstrip()[-1:] in ",;–—-，、":
                # "It is A, no sorry, B" is a statement and its correction.
                at = start + cue.start()
                said = len(opened[: cue.start()].rstrip(" ,;–—-，、"))
                self._piece(replace(piece, start=start, end=start + said), voice)
                self._piece(replace(piece, start=at), voice)
                return
            for clause in self._clauses(start, opened, piece.kind, voice.speaker):
                self._clause(clause, voice)

    def _opened(self, start: int, text: str) -> tuple[int, str]:
        """Remove the opening of a sentence ("Yes, ", "By the way, ", "Hi Bob, "), and a name at its
        end (", Bob"). Return where the rest starts, and the rest.
        """
        text = self.named_last.sub("", text)
        for opener in (pattern(self.language.name, "openers"), self.spoken_to) * 2:
            match = opener.match(text)
            if match and match.end() < len(text):
                start, text = start + match.end(), text[match.end() :]
        return start, text

    def _clauses(self, start: int, text: str, kind: Kind, speaker: Speaker) -> Iterator[Clause]:
        """Yield the clauses of a sentence that are each worth keeping, else all of it as one."""
        language = self.language
        items = list(listed(start, text, kind, speaker, language))
        if items:
            yield from items
            return
        cut = parts(pattern(language.name, "split"), text, _ONE_OF_TWO)
        setting = Setting(self.document, kind is Kind.ITEM)
        spans: list[tuple[int, int]] = []
        for first, last in cut:
            part = text[first:last]
            if len(cut) > 1 and says_nothing(part, language, setting):
                continue
            found = find_fact(part, speaker, language)
            own = judge(part, language, found, setting).kept
            own = own and (found is not None or is_whole(part, language))
            if own or not spans:
                spans.append((first, last))
            else:
                spans[-1] = (spans[-1][0], last)
        for first, last in spans:
            clause = Clause(start + first, start + last, text[first:last], kind)
            yield from coordinated(clause, speaker, language)

    def _clause(self, clause: Clause, voice: Voice) -> None:
        language, text = self.language, self._named(clause)
        clause = replace(clause, text=text)
        found = clause.found or find_fact(text, voice.speaker, language)
        found = corrected(found, text, language) if found else None
        found = self._of_document(found)
        listed = clause.kind is Kind.ITEM
        heading = self.headings.text if listed or self.document else ""
        leans = language.starts("words.pronoun", text) is not None
        cue = language.search("drop.correction", text)
        # "No, the green one" says nothing without what it takes back.
        before = self.before if leans or (cue and cue.start() <= _CUE_MAX) else None
        if before and language.starts("words.pronoun", before.text):
            before = None
        named = bool(voice.turn.speaker) and voice.speaker.entity != "user"
        setting = Setting(self.document, listed, bool(heading), before is not None, named)
        if says_nothing(text, language, setting):
            self.before = None
            return
        ordered = found is not None and language.starts("keep.order", text) is not None
        if found and ordered and (named or not found.is_ordered):
            found = None
        if not (listed or self.document) and self._is_task(text):
            return
        verdict = self._weighed(judge(text, language, found, setting), clause, voice)
        at = None
        if verdict.kept and (before or not leans or heading):
            of_name = NAME in self.headings.by_level
            if (listed or of_name) and heading and not language.has("words.first", text):
                found, heading = self._of_heading(clause, heading)
            elif not listed and voice.turn.speaker:
                heading = ""
            heading = ", ".join(filter(None, (heading, entry(self.passage.text, clause.start))))
            at = self._keep(clause, verdict, voice, heading=heading, found=found, before=before)
        addressed = at is None and (language.has("words.you", text) or size(text, language) < 3)
        self.before = None if addressed else _Before(text, clause.start, at, found)

    def _is_task(self, text: str) -> bool:
        """Return whether a text asks for something once, or specifies a thing asked for before."""
        task = self.language.starts("drop.task", text)
        order = self.tasked and self.language.starts("keep.order", text)
        if not (task or order) or self.language.has("keep.standing", text):
            return False
        self.tasked = True
        return True

    def _weighed(self, verdict: Verdict, clause: Clause, voice: Voice) -> Verdict:
        """Adjust a verdict by the context of the clause."""
        language, named = self.language, voice.speaker.entity != "user"
        advice = verdict.instructs and named and bool(voice.turn.speaker)
        requests = language.has("keep.request", clause.text)
        if advice and not requests:
            # Between people an order is advice or a pep talk, unless it is a request.
            return replace(verdict, points=0.0)
        if clause.found:
            return replace(verdict, points=max(verdict.points, _LISTED))
        if clause.kind is Kind.ITEM and language.has("keep.rules", self.headings.text):
            fact = verdict.type is MemoryType.FACT
            type_ = MemoryType.PREFERENCE if fact else verdict.type
            return replace(verdict, points=verdict.points + 2, type=type_)
        if verdict.instructs and self.document and not requests:
            return replace(verdict, type=MemoryType.PROCEDURE)
        return verdict

    def _of_heading(self, clause: Clause, heading: str) -> tuple[Found | None, str]:
        """Return the fact of a list item about its heading: "About Marcus: allergic to nuts"."""
        about = titles("about").sub("", self.headings.nearest)
        said = [clause.text]
        listed = clause.kind is Kind.ITEM
        if listed and not self.language.starts("words.definite", clause.text):
            said.append(f"{self.language.data['be']}{clause.text}")
        entity = "user" if about == self.language.data["user"] else about
        facts = (find_fact(one, Speaker(entity, about), self.language) for one in said)
        found = self._of_document(clause.found or next(filter(None, facts), None))
        ordered = self.language.starts("keep.order", clause.text)
        order = ordered or self.language.has("keep.rules", about)
        return None if order else found, titles("about").sub("", heading)

    def _of_document(self, found: Found | None) -> Found | None:
        """Return the fact of a thing that a document does not name as that of its title."""
        title = self.headings.title(self.language)
        return found.in_document(title) if found and self.document else found

    def _take_back(self) -> None:
        if self.before and self.before.at is not None:
            self.kept[self.before.at] = None

    def _named(self, clause: Clause) -> str:
        """Put the subject before it in place of "she", and the names of columns before cells."""
        text = clause.text
        if text.startswith("|"):
            return with_columns(self.passage.text, clause.start, text)
        subject = self.before.found.subject if self.before and self.before.found else ""
        match = self.language.starts("words.person", text) if subject else None
        facts = self.language.data["facts"]
        if match is None or re.fullmatch(f"{facts['first']}|{facts['we']}", subject, re.IGNORECASE):
            return text
        return subject + text[match.end() :]

    def _pair(self, piece: Piece, text: str, voice: Voice) -> None:
        """Keep a `Key: value` line, or what follows a key such as "Note", as a sentence."""
        language = self.language
        key, value = key_and_value(text)
        key, at = key.strip("* "), piece.end - len(value)
        if not any(map(str.isalnum, value)) or "?" in value or language.starts("drop.key", key):
            return
        if says_nothing(value, language, Setting(item=True)):
            return
        by = titles("by").fullmatch(key)
        key = key if by else self._opened(0, key)[1]
        decides = language.starts("keep.decision", key) is not None
        if by:
            voice = replace(voice, speaker=Speaker(by["name"], by["name"]))
        opens = (
            by
            or language.starts("keep.remember", key)
            or (titles("generic").fullmatch(key) and not decides)
        )
        opens = opens or pattern(language.name, "openers").match(f"{key}: ")
        if opens:
            for one in pieces(self.passage.text, at, piece.end, language):
                self._piece(replace(one, kind=Kind.SENTENCE), voice)
            return
        said = f"{key}: {value}"
        ordered = language.starts("keep.order", value)
        if key.istitle() and " " not in key and speaks(value, language) and not ordered:
            # In minutes of a meeting the name before the colon is the speaker.
            voice, said = replace(voice, speaker=Speaker(key, key)), value
        heading = "" if voice.turn.speaker else self.headings.text
        about = titles("about").sub("", heading)
        own = not heading or about == language.data["user"] or voice.speaker.entity != "user"
        own = own or language.has("words.first", value)
        entity = voice.speaker.entity if own else about
        speaker = replace(voice.speaker, entity=entity)
        found = of_pair(key, value, speaker, language) or find_fact(value, speaker, language)
        found = self._of_document(found)
        points = 3.0 + 2 * (found is not None) + bool(heading)
        whose = heading
        if not whose and found and found.fact.entity != "team":
            whose = voice.speaker.shown
        kept = self._keep(
            Clause(piece.start, piece.end, said, piece.kind),
            Verdict(points, MemoryType.DECISION if decides else MemoryType.FACT),
            voice, heading=whose, found=found,
        )  # fmt: skip
        self.before = _Before(said, piece.start, kept, found)

    def _answers(self, piece: Piece, text: str, voice: Voice) -> bool:
        """Keep an answer that says nothing by itself, together with its question. Return False if
        the text is no such answer.
        """
        question, language = self.question, self.language
        self.question = _Before("", 0)
        if size(question.text, language) < 3 or text.rstrip().endswith(("?", "？")):
            return False
        yes = language.starts("drop.answer_yes", text)
        opened = self._opened(0, text)[1]
        chatter = language.starts if language.spaced else language.search
        greets = language.starts("drop.greeting", text) and not yes
        if greets or chatter("drop.chatter", opened) or language.has("drop.judges", text):
            return False
        words = size(text, language)
        whole = Clause(piece.start, piece.end, text, piece.kind)
        if yes and words <= 3 and specifics(question.text, language, names=False):
            whole = replace(whole, start=question.start)
        elif (
            words > _ANSWER_WORDS_MAX
            or not specifics(opened, language)
            or find_fact(text, voice.speaker, language)
            or language.starts("drop.hedge", text)
            or (language.has("words.first", text) and not yes)
        ):
            return False
        verdict = Verdict(3.5, MemoryType.FACT)
        at = self._keep(whole, verdict, voice, question=question.text)
        self.before = _Before(text, piece.start, at)
        return True

    def _corrects(self, piece: Piece, text: str, voice: Voice) -> bool:
        """Keep what "Actually no, spaces." corrects, with the new value in place of the old one.
        Return False if the text corrects no fact.
        """
        before = self.before or self.said
        cue = self.language.search("drop.correction", text)
        if not (cue and cue.start() <= _CUE_MAX and before and before.found):
            return False
        old, value = before.found, text[cue.end() :].strip(_AROUND)
        if value.endswith(("?", "？")) or not 0 < size(value, self.language) <= _NEW_WORDS_MAX:
            return False
        kept = self.kept[before.at] if before.at is not None else None
        self.before = before
        self._take_back()
        found = Found(replace(old.fact, value=value), old.fact.value, old.subject)
        text = before.text.replace(old.fact.value, value, 1)
        verdict = Verdict(4.0, kept.type if kept else MemoryType.FACT)
        at = self._keep(
            Clause(piece.start, piece.end, text, piece.kind), verdict, voice, found=found
        )
        self.before = _Before(text, piece.start, at, found)
        return True

    def _keep(
        self, clause: Clause, verdict: Verdict, voice: Voice, *, heading: str = "",
        found: Found | None = None, before: _Before | None = None, question: str = "",
    ) -> int | None:  # fmt: skip
        """Keep a clause as a candidate. Return its place, or None if it would be too long."""
        language, turn, speaker = self.language, voice.turn, voice.speaker
        if speaker.entity == "user" and self.called:
            speaker = replace(speaker, shown=self.called)
        if found and found.names_user and clause.kind is not Kind.PAIR:
            self.called = found.fact.value
        base = turn.said_at or self.day or self.passage.occurred_at
        ahead = language.has("keep.plan", clause.text)
        past = language.has("keep.event", clause.text) and not ahead
        when = dated(clause.text, base, language, past=past)
        if turn.said_at is None and has_date(self.headings.text, language):
            # "Today" is the day of the heading; what is relative to it cannot be told.
            today = when is not None and when.at == start_of(base.astimezone(UTC), "day")
            shown = heading and not language.has("words.first", clause.text)
            when = When(self.headings.day(language), base) if today and not shown else None
        team = verdict.type is MemoryType.DECISION or (found and found.fact.entity == "team")
        context = Context(
            speaker,
            heading,
            instructs=verdict.instructs and not self.document,
            team=bool(team) and turn.speaker not in self.names,
            document=self.document,
            elided=(not language.spaced and not self.document)
            or verdict.task
            or (clause.found is not None and not language.has("words.first", clause.text)),
        )
        start = clause.start
        if before is None:
            text = stand_alone(clause.text, context, language, when)
        else:
            # The heading is put before the first of the two.
            below = replace(context, heading="", elided=context.elided and not heading)
            old = self.kept[before.at] if before.at is not None else None
            first = old.text if old else stand_alone(before.text, context, language, None)
            text = f"{first} {stand_alone(clause.text, below, language, when)}"
            start = before.start
            self._take_back()
            found = found or (before.found if old and old.fact else None)
        if question:
            text = f"{question} – {speaker.shown}: {cleaned(clause.text)}"
        if len(text) > TEXT_CHARS_MAX:
            return None
        self.kept.append(
            Candidate(
                text=text,
                type=verdict.type,
                span=Span(start, clause.end),
                fact=found.fact if found else None,
                confidence=verdict.confidence,
                importance=importance(clause.text),
                valid_from=(when.at if when and past and when.at < base else None)
                or began(clause.text, base, past=past),
                correction=bool(found and (found.replaces or found.ended)),
                replaces=found.replaces if found else None,
            )
        )
        return len(self.kept) - 1

    def chosen(self) -> tuple[Candidate, ...]:
        """Return the best of the kept candidates in the order of the text, without repetitions."""
        return chosen(self.kept, candidates_max(self.passage))
