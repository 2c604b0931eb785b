"""Reads a passage turn by turn, and turns its pieces into candidates."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from recall_server.domain.episode import Span, Turn
from recall_server.domain.extraction import Candidate, Passage, candidates_max
from recall_server.domain.memory import MemoryType, importance
from recall_server.domain.text.dates import began
from recall_server.integrations.extraction.rules import cutting, facts, headings, judging, wording
from recall_server.integrations.extraction.rules.cutting import Kind, Piece
from recall_server.integrations.extraction.rules.facts import Found, Speaker, find_fact, of_pair
from recall_server.integrations.extraction.rules.judging import Setting, Verdict, size
from recall_server.integrations.extraction.rules.language import Table, detect, shape, table

TEXT_CHARS_MAX = 500
_BEFORE_CHARS_MAX = 1_500
# Sentences that each refer to the one before are joined up to this length.
_JOINED_CHARS_MAX = 400
_ANSWER_WORDS_MAX = 14
_NAMES_MAX = 50
_SURE = 0.55
_NEW_WORDS_MAX = 6
# Where the cue of a correction begins, at the latest.
_CUE_MAX = 12
_TOLD = re.compile(r"(?:that|que|dass|[:,：，])\W*$", re.IGNORECASE)
_AROUND = " ,.!:–—-。！，"
_QUESTION = ("?", "？")


def read(passage: Passage) -> tuple[tuple[Candidate, ...], str | None]:
    """Return the candidates of a passage, and its language; None if that is not supported."""
    text = passage.text
    said = (f"{one.speaker or ''} {text[one.span.start : one.span.end]}" for one in passage.turns)
    name, _ = detect("\n".join(said))
    if name is None or not passage.turns:
        return (), name
    reader = _Reader(passage, table(name))
    for turn in passage.turns:
        reader.read(turn)
    return judging.chosen(reader.kept, candidates_max(passage)), name


@dataclass
class _Before:
    """The previous piece; `at` is its place among the kept candidates, if it was kept."""

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
        self.headings = headings.Headings()
        self.before: _Before | None = None
        self.said_by: dict[str, _Before] = {}
        self.question, self.asked_at, self.asked_by = "", 0, passage.turns[0].speaker
        self.called: str | None = None
        self.user = self.speaker = Speaker("user", language.data["user"])
        self.turn = passage.turns[0]
        self.read_to, self.opens, self.tasked, self.asked_for = 0, True, False, False
        text = passage.text
        speakers = {turn.speaker for turn in passage.turns if turn.speaker}
        lines = sum(map(bool, map(str.strip, text[:20_000].split("\n"))))
        self.notes = self.document = lines > 2 or len(text) > 400
        self.labels = headings.labels(text, speakers)
        said = [text[turn.span.start : turn.span.end] for turn in passage.turns]
        self.keyed = len(speakers) == len(said) and headings.keyed(said, language)
        self.dated = any(map(language.patterns["date"].search, text[:300].split("\n", 3)[:3]))
        self.names = {word for one in speakers | self.labels for word in (one, one.split()[0])}
        names = "|".join(map(re.escape, sorted(self.names)[:_NAMES_MAX])) or "(?!)"
        self.spoken_to = re.compile(rf"(?:{names})(?:[,!.] |[，！、])")
        self.named_last = re.compile(rf", (?:{names})(?=[.!?]*$)")
        if not speakers:
            start = self.turn.span.start
            for begin, end in ((0, min(start, 200)), (max(0, start - _BEFORE_CHARS_MAX), start)):
                for piece in cutting.pieces(text, begin, end, language):
                    if not self.headings.add(piece, language):
                        self.headings.whose(piece, self.user, language)

    def read(self, turn: Turn) -> None:
        """Read a turn, and keep the question that it ends with for the next one."""
        text, span, self.turn = self.passage.text, turn.span, turn
        name, sure = detect(text[span.start : span.end])
        self.language = table(name) if name and sure >= _SURE else self.main
        if name is None and sure >= _SURE:
            return
        if shape("ruled").search(text, self.read_to, span.end):
            self.headings = replace(self.headings, by_level={}, subject=headings.NOBODY)
            self.opens = True
        self.read_to = span.end
        found = list(cutting.pieces(text, span.start, span.end, self.language))
        if not found:
            return
        if self.notes and not turn.speaker and self.labels.isdisjoint(one.key for one in found):
            found = headings.with_heading(found, text, self.language, opens=self.opens)
        self.opens = False
        self.headings.begin(found)
        marks = [at for at, one in enumerate(found) if one.key in self.labels]
        for first, end in zip([0, *marks], [*marks, len(found)], strict=True):
            part, label = found[first:end], turn.speaker
            if part and first in marks:
                label, stop = part[0].key, part[0].end
                value = cutting.key_and_value(part[0].text)[1]
                part[:1] = cutting.pieces(text, stop - len(value), stop, self.language)
            if part:
                self._utterance(part, label)

    def _utterance(self, part: list[Piece], label: str | None) -> None:
        text, language = self.passage.text, self.language
        self.document = self.notes and label is None
        self.before, self.tasked = None, False
        line = text[max(0, self.turn.span.start - 60) : self.turn.span.start]
        speaker = headings.speaker_of(label or self.headings.sender, line, language)
        said = f"{label}: {text[part[0].start : part[-1].end]}"
        names = label and shape("whom").match(said)
        if label and self.keyed and speaker and (names or speaker.entity != "user"):
            pair = Piece(part[0].start, part[-1].end, said, Kind.PAIR)
            self.speaker = self.headings.whose(pair, speaker, language)
            self._pair(pair)
            return
        if names and any(one.kind is Kind.PAIR for one in part[1:]):
            part[0] = replace(part[0], text=f"{label}: {part[0].text}", kind=Kind.PAIR)
            label, speaker, self.turn = None, self.user, replace(self.turn, speaker=None)
        for piece in cutting.with_steps(text, part, self.headings.text, language):
            if self.headings.add(piece, language):
                self.before = None
                speaker = headings.speaker_of(label or self.headings.sender, line, language)
            elif speaker:
                self.speaker = speaker if label else self.headings.whose(piece, speaker, language)
                self._piece(piece)
        last = part[-1]
        self.question, self.asked_at, self.asked_by = "", last.start, self.turn.speaker
        if last.text.rstrip().endswith(_QUESTION) and not self.document:
            opened = wording.cleaned(self._opened(last).text)
            self.question = opened[:1].upper() + opened[1:]

    def _piece(self, piece: Piece) -> None:
        language, quote = self.language, shape("quote").search(piece.text)
        if quote and language.has("words.first", quote["said"]):
            self.before = None  # Who "I" is there cannot be told.
            return
        if language.has("drop.taken_back", piece.text):
            self._take_back(self.before)
        if piece.kind is Kind.STEPS:
            self._keep(piece, Verdict(5.0, MemoryType.PROCEDURE), heading=self.headings.text)
            return
        if self._answers(piece) or self._corrects(piece):
            return
        if piece.kind is Kind.PAIR:
            self._pair(piece)
            return
        opened = self._opened(piece)
        opener = piece.text[: opened.start - piece.start]
        self.asked_for = bool(self.language.has("keep.remember", opener) and _TOLD.search(opener))
        if (cue := language.search("drop.correction", opened.text)) and cue.start() > _CUE_MAX:
            return  # "It is A, no sorry, B": what is meant cannot be told.
        for clause in self._clauses(opened):
            self._clause(clause)

    def _opened(self, piece: Piece) -> Piece:
        """Return a piece without its opening ("Hi Bob, ") and a name at its end (", Bob")."""
        piece = replace(piece, text=self.named_last.sub("", piece.text))
        for opener in (self.language.patterns["openers"], self.spoken_to) * 2:
            match = opener.match(piece.text)
            if match and match.end() < len(piece.text):
                rest = piece.text[match.end() :]
                piece = replace(piece, start=piece.start + match.end(), text=rest)
        return piece

    def _clauses(self, piece: Piece) -> Iterator[Piece]:
        """Yield the clauses of a sentence that are each worth keeping, else all of it as one."""
        language = self.language
        piece, *listed = cutting.listed(piece, self.speaker, language)
        text = piece.text
        cut = cutting.parts(language.patterns["split"], text)
        cut = [part for first, last in cut for part in self._apart(text, first, last)]
        if language.starts("drop.condition", text):
            cut = [(0, len(text))]  # What follows "if it burns and" holds only then.
        setting = Setting(self.document, piece.kind is Kind.ITEM)
        spans, ends = list[tuple[int, int]](), True
        for first, last in cut:
            part = text[first:last]
            asks = text.rstrip().endswith(_QUESTION) and language.has("words.you", part)
            if len(cut) > 1 and (asks or judging.says_nothing(part, language, setting)):
                continue
            found = find_fact(part, self.speaker, language)
            whole = judging.is_whole(part, language)
            worth = judging.judge(part, language, found, setting).points >= judging.KEPT_FROM
            own = (found or whole) and worth and ends
            if own or not spans:
                spans.append((first, last))
            else:
                spans[-1] = (spans[-1][0], last)
            # "The lock is stuck, I need some oil": what goes on may rest on what says too little.
            ends = worth and not judging.leans(part, language)
        left = len(spans) == 1 and spans[0] != (0, len(text))
        if left and not judging.is_sentence(text[slice(*spans[0])], language):
            spans = []  # "I told Jo" of "I told Jo and he was glad, I think"
        for first, last in spans:
            start, end = piece.start + first, piece.start + last
            found = piece.found if len(spans) == 1 else None
            clause = replace(piece, start=start, end=end, text=text[first:last], found=found)
            yield from cutting.listed(clause, self.speaker, language)
        yield from listed

    def _apart(self, text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the places of what changes by itself, and of what stands before it: "My landlord is
        Mr Ode, rent is 950". Else the place of all.
        """
        for thing in facts.patterns(self.language.name).thing.finditer(text, first, last):
            stands = judging.is_whole(text[first : thing.start()], self.language)
            if stands and find_fact(text[thing.end() : last], self.speaker, self.language):
                yield first, thing.start()
                first = thing.end()
        yield first, last

    def _clause(self, clause: Piece) -> None:
        language, text = self.language, clause.text
        listed, heading = clause.kind is Kind.ITEM, self.headings.text
        found = self._of_document(clause.found or find_fact(text, self.speaker, language))
        leans = judging.leans(text, language)
        if found and self._of_another(found, text, leans=leans):
            found, leans = None, leans or not self.document
        cue = language.search("drop.correction", text)
        # "No, the green one" says nothing without what it takes back.
        refers = leans or (cue and cue.start() <= _CUE_MAX)
        before = self.before
        if not refers or (before and not self._names(before, text)):
            before = None
        named = self.speaker.entity != "user"
        rules = listed and language.has("keep.rules", heading)
        setting = Setting(
            self.document, listed, bool(heading), before is not None, named, rules, self.asked_for
        )
        if judging.says_nothing(text, language, setting):
            self.before = None
            return
        ordered = found and language.starts("keep.order", text)
        if found and ordered and (named or not facts.is_of("ordered", found)):
            found = None
        asks = ("drop.task", *(["keep.order"] if self.tasked else []))
        task = any(language.starts(cue, text) for cue in asks)
        if task and not (listed or self.document or language.has("keep.standing", text)):
            self.tasked = True
            return  # "Write a poem. Use four lines." is asked for once.
        verdict = judging.judge(text, language, found, setting)
        if (verdict.points >= judging.KEPT_FROM or clause.found) and (before or not leans):
            if listed and heading and not language.has("words.first", text):
                found, heading = self._of_heading(clause, heading)
            elif self.turn.speaker and not listed:
                heading = ""
            heading = self._with_subject(heading, text, self.speaker)
            self._keep(clause, verdict, heading=heading, found=found, before=before)
        elif language.has("words.you", text):
            self.before = None
        else:
            self.before = _Before(text, clause.start, None, found)

    def _names(self, before: _Before, text: str) -> bool:
        """Return whether the piece before says what a text refers to."""
        said, language = before.text, self.language
        led = None if before.at is None else self.kept[before.at]
        if led is None and (judging.leans(said, language) or language.has("words.vague", said)):
            return False
        one = shape("person").match(said) or not language.has("words.plural", said)
        if one and shape("they").match(text):
            return False
        if led and len(led.text) + len(text) > _JOINED_CHARS_MAX:
            return False
        named = shape("capital").search(said) or language.starts_with_name(said)
        known = named or language.has("words.relation", said) or judging.leans(said, language)
        return bool(known) or not shape("person").match(text)

    def _of_another(self, found: Found, text: str, *, leans: bool) -> bool:
        """Return whether a fact without a subject is of somebody who was named before."""
        before, language = self.before, self.language
        if self.document and language.starts("words.elided", text):
            return True  # "Likes puzzles"
        if found.fact.entity == "team" and leans:
            return True  # "Su casero le sube el alquiler a 950 euros"
        if before is None or found.subject or found.fact.entity != self.speaker.entity:
            return False
        known = before.found and before.found.fact.entity not in (self.speaker.entity, "team")
        spoken = language.has("words.first", text) or language.has("words.we", text)
        if leans and not spoken:
            return True  # "También es vegana"
        mine = facts.is_owned(before.text, language)
        other = known or mine or language.starts("words.pronoun", before.text) is not None
        if language.spaced:
            # "Tom never eats meat. Also loves hiking."
            third = language.name == "en" and language.starts("words.elided", text) is not None
            other = other or (third and language.starts_with_name(before.text))
            return bool(other) and not (spoken or facts.speaks(before.text, language))
        about = any(language.has(f"words.{cue}", before.text) for cue in ("relation", "person"))
        own = before.found and before.found.fact.entity == self.speaker.entity
        return about and not (spoken or own)

    def _of_heading(self, clause: Piece, heading: str) -> tuple[Found | None, str]:
        """Return the fact of a list item about its heading: "About Marcus: allergic to nuts"."""
        language, about = self.language, shape("about").sub("", self.headings.nearest)
        heading = shape("about").sub("", heading)
        if language.starts("keep.order", clause.text) or language.has("keep.rules", about):
            return None, heading
        of = Speaker("user" if about == language.data["user"] else about, about)
        found = clause.found or find_fact(clause.text, of, language)
        if not language.spaced:
            return self._of_document(found if found and found.subject else None), heading
        is_it = find_fact(f"{language.data['be']}{clause.text}", of, language)
        is_it = is_it if is_it and is_it.fact.attribute != "name" else None
        return self._of_document(found or is_it), heading

    def _of_document(self, found: Found | None) -> Found | None:
        """Return the fact of an unnamed thing as that of the title; None if it is one of many."""
        if not (found and self.document and found.fact.entity == "team"):
            return found
        if facts.is_of("of_parts", found):
            return None
        title = self.headings.text or self.headings.subject.shown
        # A text whose title names a day is one of many about the same things.
        shared = found.subject or not title or self.language.patterns["date"].search(title)
        return found if shared else replace(found, fact=replace(found.fact, entity=title))

    def _with_subject(self, heading: str, text: str, speaker: Speaker) -> str:
        """Return a heading with the subject that a line above names, if the text does not."""
        subject = self.headings.subject
        if speaker not in (subject, self.user) or subject.shown in text:
            return heading
        return f"{heading}, {subject.shown}".removeprefix(", ")

    def _take_back(self, before: _Before | None) -> Candidate | None:
        """Drop what was kept of a piece, and return it."""
        if before is None or before.at is None:
            return None
        kept, self.kept[before.at] = self.kept[before.at], None
        return kept

    def _pair(self, piece: Piece) -> None:
        """Keep a `Key: value` line, or what follows a key such as "Note", as a sentence."""
        language = self.language
        key, value = cutting.key_and_value(piece.text)
        by = shape("by").fullmatch(key)
        key = self._opened(replace(piece, text=key.strip("* "))).text
        empty = "?" in value or not size(value, language) or language.starts("drop.key", key)
        quoted = language.has("drop.quoted", key)
        # In a mail, a date by itself says when it was sent.
        short = self.headings.sender and size(value, language) <= _NEW_WORDS_MAX
        sent = short and language.patterns["date"].match(value)
        if empty or quoted or sent or judging.says_nothing(value, language, Setting(item=True)):
            return
        decides = language.starts("keep.decision", key)
        generic = shape("generic").fullmatch(key) and not decides
        opener = language.patterns["openers"].match(f"{key}: ")
        if generic or (opener and opener.end() > len(key)):
            start, end = piece.end - len(value), piece.end
            for one in cutting.pieces(self.passage.text, start, end, language):
                self._piece(replace(one, kind=Kind.SENTENCE))
            return
        said, speaker, subject = f"{key}: {value}", self.speaker, self.headings.subject
        heading = "" if self.turn.speaker else self.headings.text
        speaks = language.has("words.first", value) and not language.starts("keep.order", value)
        named = key.istitle() and " " not in key and not re.match(r"me\b", value)
        if by or (speaks and named):
            # In minutes of a meeting the name before the colon is the speaker.
            name = by["name"] if by else key
            said, speaker = value, Speaker(name, name)
        heading = self._with_subject(heading, value, speaker)
        about = shape("about").sub("", heading)
        of_user = about in ("", language.data["user"]) or language.has("words.first", value)
        whose = speaker if of_user or speaker.entity != "user" else Speaker(about, about)
        # "Nombre: Max" looks like a speaker in a text whose lines all have labels.
        of = self.user if self.keyed and speaker != subject else whose
        # Whether what somebody says as a pair is about them cannot be told.
        sure = not self.turn.speaker or of.entity in ("user", subject.entity)
        known = of_pair(key, value, of, language) if sure and of.shown not in value else None
        said_of = None if speaker == subject else find_fact(value, whose, language)
        found = self._of_document(known or said_of)
        if not heading and found and found.fact.entity == "user":
            heading = self.user.shown
        type_ = MemoryType.DECISION if decides else MemoryType.FACT
        verdict = Verdict(5.0 if found else 3.0, type_)
        piece = replace(piece, text=said)
        self._keep(piece, verdict, heading=heading, found=found, speaker=speaker)

    def _answers(self, piece: Piece) -> bool:
        """Keep an answer that says nothing by itself with its question; False if it is none."""
        question, self.question = self.question, ""
        text, language = piece.text, self.language
        least = 2 if shape("which").fullmatch(question) else 3
        # "Unos 120 euros." says nothing without "¿Presupuesto?".
        asks = judging.has_verb(text, language) or language.has("drop.question", question)
        short = size(question, language) < least and asks
        if not question or short or text.rstrip().endswith(_QUESTION):
            return False
        opened, words = self._opened(piece).text, size(text, language)
        yes = language.starts("drop.answer_yes", text)
        greets = language.starts("drop.greeting", text) and not yes
        # "In Oslo, till I was nine." is an answer still.
        speaks = language.has("words.first", opened[:12] if language.name == "en" else text)
        chats = language.starts("drop.chatter", opened) or language.has("drop.judges", text)
        # "Is it far? Please answer in kilometres."
        chats = chats or self.asked_by == self.turn.speaker
        speaks = speaks and not judging.leans(opened, language)
        spoken = words > _ANSWER_WORDS_MAX or (speaks and not yes)
        if yes and words <= 3 and judging.specifics(question, language):
            piece = replace(piece, start=self.asked_at)
        elif yes and words <= 3 and not judging.specifics(opened, language):
            self.question = question
            return False
        elif greets or chats or spoken or not judging.specifics(opened, language):
            return False
        self._keep(piece, Verdict(3.5, MemoryType.FACT), question=question)
        return True

    def _corrects(self, piece: Piece) -> bool:
        """Keep "Actually no, spaces" as the new value of a fact; False if it corrects none."""
        before = self.before or self.said_by.get(self.speaker.shown)
        cue = self.language.search("drop.correction", piece.text)
        if not (cue and cue.start() <= _CUE_MAX and before and before.found):
            return False
        old, value = before.found, piece.text[cue.end() :].strip(_AROUND)
        if value.endswith(_QUESTION) or not 0 < size(value, self.language) <= _NEW_WORDS_MAX:
            return False
        kept = self._take_back(before)
        found = Found(replace(old.fact, value=value), old.fact.value, old.subject)
        clause = replace(piece, text=before.text.replace(old.fact.value, value, 1))
        self._keep(clause, Verdict(4.0, kept.type if kept else MemoryType.FACT), found=found)
        return True

    def _keep(
        self, clause: Piece, verdict: Verdict, *, heading: str = "", found: Found | None = None,
        before: _Before | None = None, question: str = "", speaker: Speaker | None = None,
    ) -> None:  # fmt: skip
        """Keep a clause as a candidate, unless it would be too long."""
        language, turn, speaker = self.language, self.turn, speaker or self.speaker
        if speaker.entity == "user" and self.called:
            speaker = replace(speaker, shown=self.called)
        names = found and (found.fact.entity, found.fact.attribute) == ("user", "name")
        if found and names and clause.kind is not Kind.PAIR:
            self.called = found.fact.value
        said, base = clause.text, turn.said_at or self.passage.occurred_at
        first = language.has("words.first", said)
        past = language.has("keep.event", said) and not language.has("keep.plan", said)
        past = past and clause.kind is not Kind.PAIR
        when = wording.dated(said, base, language, past=past)
        key = said.partition(":")[0] if ":" in said else ""
        names_day = language.patterns["date"].search(f"{self.headings.text}\n{key}")
        if turn.said_at is None and (names_day or (self.dated and self.document)):
            # "Today" is the day that the text names above or before a colon; what is relative to it
            # cannot be told.
            if when and first:
                return
            when = None
        alone = not language.spaced and not self.document
        team = verdict.type is MemoryType.DECISION or (found and found.fact.entity == "team")
        context = wording.Context(
            speaker,
            heading,
            instructs=verdict.instructs and not self.document,
            team=bool(team) and turn.speaker not in self.names,
            document=self.document and bool(self.headings.text),
            elided=alone or verdict.until or (clause.found is not None and not first),
        )
        start = clause.start
        if question:
            text = f"{question} – {speaker.shown}: {wording.cleaned(said)}"
        elif before is None:
            text = wording.stand_alone(said, context, language, when)
        else:
            # The heading is put before the first of the two.
            below = replace(context, heading="", elided=context.elided and not heading)
            old = self._take_back(before)
            if old and verdict.type is not MemoryType.DECISION:
                verdict = replace(verdict, type=old.type)
            stated = replace(context, instructs=False)
            led = old.text if old else wording.stand_alone(before.text, stated, language, None)
            text = wording.stand_alone(said, below, language, when)
            who = f"{speaker.shown}{': ' if language.spaced else '：'}"
            if text.startswith(who):
                text = text.removeprefix(who)
                led = led if heading or speaker.shown in led else f"{who}{led}"
            text = f"{led} {text}"
            start = before.start
            found = found or (before.found if old and old.fact else None)
        self.before = self.said_by[self.speaker.shown] = _Before(said, clause.start, None, found)
        if len(text) > TEXT_CHARS_MAX:
            return
        self.before.at = len(self.kept)
        began_at = when.at if when and past and when.at < base else None
        self.kept.append(
            Candidate(
                text=text,
                type=verdict.type,
                span=Span(start, clause.end),
                fact=found.fact if found else None,
                confidence=verdict.confidence,
                importance=importance(said),
                valid_from=began_at or began(said, base, past=past),
                correction=bool(found and (found.replaces or found.ended)),
                replaces=found.replaces if found else None,
            )
        )
