"""Reads a passage turn by turn, and turns its pieces into candidates."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recall_server.domain.episode import Span, Turn
from recall_server.domain.extraction import Candidate, Passage, candidates_max
from recall_server.domain.memory import MemoryType, importance
from recall_server.domain.text.dates import began
from recall_server.domain.text.labels import may_speak
from recall_server.domain.text.terms import terms
from recall_server.integrations.rules import facts, judging, layout, wording
from recall_server.integrations.rules.facts import Found, Speaker, find_fact, of_pair
from recall_server.integrations.rules.judging import Setting, Verdict, size
from recall_server.integrations.rules.language import Table, detect, shape, table
from recall_server.integrations.rules.layout import Kind, Piece

TEXT_CHARS_MAX = 500
_BEFORE_CHARS_MAX = 1_500
# Sentences that each refer to the one before are joined up to this length.
_JOINED_CHARS_MAX = 400
_ANSWER_WORDS_MAX = 14
_NAMES_MAX = 50
# So many names of code, within so many characters, make a text one about code.
_WRITTEN_MIN, _WRITTEN_CHARS = 2, 8_000
_HEAD_CHARS = 200
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
    """The previous piece, its fact, and its candidate, if it was kept."""

    text: str
    start: int
    found: Found | None = None
    kept: Candidate | None = None


class _Reader:
    """Reads a passage turn by turn; knows the headings, the last question and the last piece."""

    def __init__(self, passage: Passage, language: Table) -> None:
        self.passage = passage
        self.language = self.main = language
        self.kept: list[Candidate] = []
        self.headings = layout.Headings()
        self.before: _Before | None = None
        self.said_by: dict[str, _Before] = {}
        self.asked: Piece | None = None
        self.called: str | None = None
        self.user = self.speaker = Speaker("user", language.data["user"])
        self.turn, self.asked_by = passage.turns[0], passage.turns[0].speaker
        self.read_to, self.opens, self.silent = 0, True, True
        self.tasked = self.asked_for = self.puts_right = self.handed = self.in_mail = False
        text = passage.text
        speakers = {turn.speaker for turn in passage.turns if turn.speaker}
        lines = sum(map(bool, map(str.strip, text[:20_000].split("\n"))))
        self.notes = self.document = lines > 2 or len(text) > 400
        written = {one[0] for one in shape("written").finditer(text[:_WRITTEN_CHARS])}
        self.technical = len(written) >= _WRITTEN_MIN
        said = [text[turn.span.start : turn.span.end] for turn in passage.turns]
        self.keyed = len(speakers) == len(said) and layout.keyed(said, language)
        self.dated = any(map(language.patterns["date"].search, text[:300].split("\n", 3)[:3]))
        named = {word for one in speakers for word in (one, one.split()[0])}
        names = "|".join(map(re.escape, sorted(named)[:_NAMES_MAX])) or "(?!)"
        self.spoken_to = re.compile(rf"(?:{names})(?:[,!.] |[，！、])")
        self.named_last = re.compile(rf", (?:{names})(?=[.!?]*$)")
        start, label = self.turn.span.start, f"{self.turn.speaker}: " if speakers else ""
        at = (text.rfind(label, 0, start) if label else 0) + len(label)
        if len(label) <= at < start:  # A text that is handed over may be longer than a passage.
            asks = layout.pieces(text, at, min(start, at + _HEAD_CHARS), language)
            self.handed, self.read_to = self._own(list(asks), above=False)[1], start if label else 0
        if not speakers:
            for begin, end in ((0, min(start, 200)), (max(0, start - _BEFORE_CHARS_MAX), start)):
                for piece in layout.pieces(text, begin, end, language):
                    if not self.headings.add(piece, language):
                        self.headings.whose(piece, self.user, language)

    def read(self, turn: Turn) -> None:
        """Read a turn, and keep the question that it ends with for the next one."""
        text, span, self.turn = self.passage.text, turn.span, turn
        name, sure = detect(text[span.start : span.end])
        own = turn.speaker or turn.said_at is None  # "Mon 3 May" is no French.
        self.language = table(name) if name and sure >= _SURE and own else self.main
        if name is None and sure >= _SURE:
            return
        if shape("ruled").search(text, self.read_to, span.end):
            self.headings = replace(self.headings, by_level={}, subject=layout.NOBODY)
            self.opens = True
        # A text that is handed over goes on in a turn that has no label above it.
        self.handed &= not (turn.speaker and text[self.read_to : span.start].strip())
        above = span.start if turn.speaker else self.read_to  # A day above it is in no turn.
        for piece in layout.pieces(text, above, span.start, self.language):
            self.headings.add(piece, self.language)
        self.read_to = span.end
        self.in_mail = bool(shape("header").match(text[span.start : span.start + _HEAD_CHARS]))
        found = list(layout.pieces(text, span.start, span.end, self.language))
        if not found:
            return
        if self.notes and not turn.speaker:
            dated = turn.said_at is not None
            found = layout.with_heading(found, text, self.language, opens=self.opens, dated=dated)
        self.opens = False
        self.headings.begin(found)
        self._utterance(found, turn.speaker)

    def _utterance(self, part: list[Piece], label: str | None) -> None:
        text, language = self.passage.text, self.language
        part, self.handed = self._own(part, above=self.handed)
        if not part:
            return
        self.document = self.notes and (label is None or self.in_mail)
        self.before, self.tasked, self.silent = None, False, True
        line = text[max(0, self.turn.span.start - 60) : self.turn.span.start]
        speaker = layout.speaker_of(label or self.headings.sender, line, language)
        said = f"{label}: {text[part[0].start : part[-1].end]}"
        names = label and shape("whom").match(said)
        if label and self.keyed and speaker:
            pair = Piece(part[0].start, part[-1].end, said, Kind.PAIR)
            self.speaker = self.headings.whose(pair, speaker, language)
            self._pair(pair)
            return
        if names and any(one.kind is Kind.PAIR for one in part[1:]):
            part[0] = replace(part[0], text=f"{label}: {part[0].text}", kind=Kind.PAIR)
            label, speaker, self.turn = None, self.user, replace(self.turn, speaker=None)
        for piece in layout.with_steps(text, self._as_answer(part), self.headings.text, language):
            if self.headings.add(piece, language):
                self.before = None
                speaker = layout.speaker_of(label or self.headings.sender, line, language)
            elif speaker:
                self.speaker = speaker if label else self.headings.whose(piece, speaker, language)
                self._piece(piece)
        asks = part[-1].text.rstrip().endswith(_QUESTION) and not self.document
        self.asked, self.asked_by = part[-1] if asks else None, self.turn.speaker

    def _own(self, part: list[Piece], *, above: bool) -> tuple[list[Piece], bool]:
        """Return what is said without a text handed over ("Translate this:"), and if one is."""
        begins = self.turn.speaker is not None or all(x.start < _HEAD_CHARS for x in part[:1])
        for at, piece in enumerate(part if begins and not above else ()):
            said = "" if piece.kind is Kind.ITEM else piece.text.replace("：", ":")
            head, apart, below = said.partition(":")
            asks = self.language.has("drop.handed", f"{head.strip()}{apart}{below[:1]}")
            if asks and apart:
                return part[:at], True
            end = self.passage.text.find("\n", piece.end) if asks and piece in part[:2] else -1
            if end >= 0:
                return [one for one in part if one.end <= end and one is not piece], True
        return ([], True) if above else (part, False)

    def _as_answer(self, part: list[Piece]) -> list[Piece]:
        """Return "Nine. Well, eleven in summer.", a short answer of several sentences, as one."""
        if not self.asked or any(one.kind is not Kind.SENTENCE for one in part):
            return part
        language, said = self.language, self.passage.text[part[0].start : part[-1].end]
        short = size(said, language) <= _ANSWER_WORDS_MAX and not judging.has_verb(said, language)
        opens = language.starts("drop.answer_yes", said)
        if opens or not short or language.has("words.first", said) or "?" in said:
            return part
        return [replace(part[0], end=part[-1].end, text=said)]

    def _piece(self, piece: Piece, before: str = "") -> None:
        language, quote = self.language, shape("quote").search(piece.text)
        if quote and language.has("words.first", quote["said"]):
            self.before = None  # Who "I" is there cannot be told.
            return
        if language.has("drop.taken_back", piece.text):
            self._take_back(self.before)
        if piece.kind is Kind.STEPS:
            steps = Verdict(judging.SURE, MemoryType.PROCEDURE)
            self._keep(piece, steps, heading=self.headings.text)
            return
        if self._answers(piece) or self._corrects(piece):
            return
        if piece.kind is Kind.PAIR:
            self._pair(piece)
            return
        opened = self._opened(piece)
        opener = before or piece.text[: opened.start - piece.start]
        self.puts_right = language.has("keep.correction", opener)
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
        piece, *listed = layout.listed(piece, self.speaker, language)
        text, setting = piece.text, Setting(self.document, piece.kind is Kind.ITEM)
        spans = cut = layout.parts(facts.patterns(language.name).split, text)
        if len(cut) > 1:
            said = (judging.says_nothing(text[slice(*span)], language, setting) for span in cut)
            spans = [span for span, empty in zip(cut, said, strict=True) if not empty]
        if not all(self._stands(text[slice(*span)], setting) for span in spans):
            spans = self._by_fact(text, spans)
        left = text[slice(*spans[0])] if len(spans) == 1 else text
        whole = left == text or judging.is_sentence(left, language)
        if not (whole or find_fact(left, self.speaker, language)):
            spans = []  # "I told Jo" of "I told Jo and he was glad, I think"
        for first, last in spans:
            start, end = piece.start + first, piece.start + last
            found = piece.found if len(spans) == 1 else None
            clause = replace(piece, start=start, end=end, text=text[first:last], found=found)
            yield from layout.listed(clause, self.speaker, language)
        yield from listed

    def _by_fact(self, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Join the parts of a sentence, but no two with a fact each: what supersedes one memory
        must not hide the other fact.
        """
        joined, stated = [spans[0]], False
        for span in spans:
            found = find_fact(text[slice(*span)], self.speaker, self.language)
            if found and stated:
                joined.append(span)
            joined[-1] = (joined[-1][0], span[1])
            stated = stated or bool(found)
        return joined

    def _stands(self, part: str, setting: Setting) -> bool:
        """Return whether a part of a sentence is worth keeping and can be understood alone."""
        language, found = self.language, find_fact(part, self.speaker, self.language)
        vague = judging.leans(part, language) or language.has("words.vague", part)
        alone = found or (judging.is_sentence(part, language) and not vague)
        return bool(alone and judging.judge(part, language, found, setting))

    def _clause(self, clause: Piece) -> None:
        language, text = self.language, wording.unmarked(clause.text)
        listed, heading = clause.kind is Kind.ITEM, self.headings.text
        found = self._of_document(clause.found or find_fact(text, self.speaker, language))
        # Below the heading "Noor", "she needs a dark tent" is about Noor.
        leans = judging.leans(text, language) and not (listed and heading and self.document)
        if found and self._of_another(found, clause):
            # "Good. Always use uv." is an order still.
            orders = language.starts("keep.order", text)
            found, leans = None, leans or not (self.document or orders)
        self.silent = False
        cue = language.search("drop.correction", text)
        # "No, the green one" says nothing without what it takes back.
        refers = leans or (cue and cue.start() <= _CUE_MAX)
        before = self.before
        # Each line of a document is a note of its own.
        above = self.passage.text[: clause.start][-9:].rstrip(" -*+•")
        begins = self.document and above.endswith("\n")
        if not refers or begins or (before and not self._names(before, text)):
            before = None
        setting = Setting(
            self.document,
            listed,
            bool(heading or self.headings.subject.shown),
            before is not None,
            named=self.speaker.entity != "user",
            rules=listed and language.has("keep.rules", heading),
            asked_for=self.asked_for,
            technical=self.technical,
        )
        if judging.says_nothing(text, language, setting):
            self.before = None
            return
        cues = ("drop.task", "keep.order") if self.tasked else ("drop.task",)
        task = any(language.starts(cue, text) for cue in cues)
        if task and not (listed or self.document or language.has("keep.standing", text)):
            self.tasked = True
            return  # "Write a poem. Use four lines." is asked for once.
        verdict = judging.judge(text, language, found, setting)
        if verdict and (before or not leans):
            if listed and heading and not language.has("words.first", text):
                found, heading = self._of_heading(clause, heading)
            elif self.turn.speaker and not (listed or self.in_mail or self.headings.sections):
                heading = ""
            heading = self._with_subject(heading, text, self.speaker)
            self._keep(clause, verdict, heading=heading, found=found, before=before)
        else:
            self.before = _Before(text, clause.start, found)

    def _names(self, before: _Before, text: str) -> bool:
        """Return whether the piece before says what a text refers to."""
        said, language = before.text, self.language
        if before.kept is None or len(before.kept.text) + len(text) > _JOINED_CHARS_MAX:
            return False
        one = shape("person").match(said) or not language.has("words.plural", said)
        if one and shape("they").match(text):
            return False
        named = judging.names(f" {before.kept.text}", language)
        return named or judging.leans(said, language) or not shape("person").match(text)

    def _of_another(self, found: Found, clause: Piece) -> bool:
        """Return whether a fact without a subject may be of somebody other than the speaker."""
        language, text, before = self.language, clause.text, self.before
        if found.subject or found.fact.entity != self.speaker.entity or clause.found:
            return False
        if language.has("words.first", text) or language.has("words.we", text):
            return False
        if self.silent:  # Nothing was said before it in this turn.
            below = self.document or self.headings.text
            return bool(below and language.starts("words.elided", text))
        mine = before and not language.has("words.relation", before.text)
        return not (before and mine and facts.speaks(before.text, language))

    def _of_heading(self, clause: Piece, heading: str) -> tuple[Found | None, str]:
        """Return the fact of a list item about its heading: "About Marcus: allergic to nuts"."""
        language, nearest = self.language, self.headings.nearest
        about, heading = shape("about").sub("", nearest), shape("about").sub("", heading)
        if language.starts("keep.order", clause.text) or language.has("keep.rules", about):
            return None, heading
        user = about == language.data["user"]
        of = Speaker("user" if user else about, about)
        found = clause.found or find_fact(clause.text, of, language)
        if found is None and language.spaced:
            found = find_fact(f"{language.data['be']}{clause.text}", of, language)
            found = found if found and found.fact.attribute != "name" else None
        known = found and (found.fact.entity != about or about != nearest)
        return self._of_document(found if known else None), heading

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
        if before is None or before.kept not in self.kept:
            return None
        self.kept.remove(before.kept)
        return before.kept

    def _pair(self, piece: Piece) -> None:
        """Keep a `Key: value` line, or what follows a key such as "Note", as a sentence."""
        language = self.language
        key, value = layout.key_and_value(piece.text)
        by = shape("by").fullmatch(key)
        key = self._opened(replace(piece, text=key.strip("* "))).text
        empty = not size(value, language) or language.starts("drop.key", key)
        silent = empty or "?" in value or language.has("drop.quoted", key)
        if silent or judging.says_nothing(value, language, Setting(item=True)):
            return
        decides = language.starts("keep.decision", key)
        opener = language.patterns["openers"].match(f"{key}: ")
        generic = shape("generic").fullmatch(key) and not decides
        puts_right = language.starts("keep.correction", key)
        if generic or puts_right or (opener and opener.end() > len(key)):
            start, end = piece.end - len(value), piece.end
            for one in layout.pieces(self.passage.text, start, end, language):
                self._piece(replace(one, kind=Kind.SENTENCE), key if puts_right else "")
            return
        said, speaker, subject = f"{key}: {value}", self.speaker, self.headings.subject
        first = language.has("words.first", value)
        speaks = not (language.starts("keep.order", value) or re.match(r"(?:me|mine)\b", value))
        # In minutes of a meeting the name before the colon is the speaker.
        named = key.istitle() and " " not in key and may_speak(key, small=False)
        if by or (first and speaks and named and not self.turn.speaker):
            name = by["name"] if by else key
            said, speaker = value, Speaker(name, name)
        heading = "" if self.turn.speaker else self.headings.text
        heading = self._with_subject(heading, value, speaker)
        about = shape("about").sub("", heading)
        mine = first or about in ("", language.data["user"]) or speaker.entity != "user"
        of = speaker if mine else Speaker(about, about)
        # "Nombre: Max" looks like a speaker in a text whose lines all have labels.
        of = self.user if self.keyed and speaker != subject else of
        # Whether what somebody says as a pair is about them cannot be told.
        sure = not self.turn.speaker or of.entity in ("user", subject.entity)
        sure = sure and of.shown not in value and not judging.is_sentence(value, language)
        found = self._of_document(of_pair(key, value, of, language) if sure else None)
        if not heading and found and found.fact.entity == "user":
            heading = self.user.shown
        type_ = MemoryType.DECISION if decides else MemoryType.FACT
        verdict = Verdict(judging.SURE if found else judging.UNSURE, type_)
        self._keep(
            replace(piece, text=said), verdict, heading=heading, found=found, speaker=speaker
        )

    def _answers(self, piece: Piece) -> bool:
        """Keep an answer that says nothing by itself with its question; False if it is none."""
        asked, self.asked = self.asked, None
        text, language, opened = piece.text, self.language, self._opened(piece).text
        if not asked or text.rstrip().endswith(_QUESTION) or self.asked_by == self.turn.speaker:
            return False
        question = wording.cleaned(self._opened(asked).text)
        question = question[:1].upper() + question[1:]
        # "Unos 120 euros." says nothing without "¿Presupuesto?".
        asks = judging.has_verb(text, language) or language.has("drop.question", question)
        fits = (3 if asks else 0) <= size(question, language) <= _ANSWER_WORDS_MAX
        yes = language.starts("drop.answer_yes", text)
        if yes and size(text, language) <= 3:
            if judging.specifics(question, language) and size(question, language) > 3:
                piece, opened = replace(piece, start=asked.start), question
            elif not judging.specifics(opened, language):
                self.asked = asked
                return False
        elif judging.says_nothing(opened, language, Setting()):
            fits = False
        # "In Oslo, till I was nine." is an answer still.
        speaks = language.has("words.first", opened[:12] if language.name == "en" else text)
        speaks = speaks and not (yes or judging.leans(opened, language))
        vague = language.starts("words.pronoun", opened) or language.has("drop.judges", text)
        # "Two years?" – "Two years. Hm."
        vague = vague or not (yes or set(terms(opened)).difference(terms(asked.text)))
        fits = fits and size(text, language) <= _ANSWER_WORDS_MAX
        if not fits or speaks or vague or not judging.specifics(opened, language):
            return False
        self._keep(piece, Verdict(judging.UNSURE, MemoryType.FACT), question=question)
        return True

    def _cited(self, start: int, end: int) -> Span:
        """Return a span with the mark before it: "**Tue 3 Feb** Back to 10 mg."."""
        text = self.passage.text
        marked = text.count("**", start, end) % 2 and text.endswith("**", 0, start)
        return Span(start - 2 if marked else start, end)

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
        verdict = Verdict(judging.SURE, kept.type if kept else MemoryType.FACT)
        self._keep(clause, verdict, found=found)
        return True

    def _keep(
        self,
        clause: Piece,
        verdict: Verdict,
        *,
        heading: str = "",
        found: Found | None = None,
        before: _Before | None = None,
        question: str = "",
        speaker: Speaker | None = None,
    ) -> None:
        """Keep a clause as a candidate, unless it would be too long."""
        language, turn, speaker = self.language, self.turn, speaker or self.speaker
        if speaker.entity == "user" and self.called:
            speaker = replace(speaker, shown=self.called)
            if heading == language.data["user"]:  # of "About me"
                heading = "" if language.has("words.first", clause.text) else self.called
        fact = found.fact if found and clause.kind is not Kind.PAIR else None
        if fact and (fact.entity, fact.attribute) == ("user", "name"):
            self.called = fact.value
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
        # "Hanna: one-pager until Friday"
        until = language.has("keep.plan", said) and not (first or language.has("keep.state", said))
        until = until and clause.kind is Kind.SENTENCE and speaker.entity != "user"
        if turn.speaker and not self.in_mail and (until or language.starts("keep.elided", said)):
            heading = ""  # The name of whom it is about says more.
        alone = until or not (language.spaced or self.document)
        team = verdict.type is MemoryType.DECISION or (found and found.fact.entity == "team")
        context = wording.Context(
            speaker,
            heading,
            instructs=verdict.instructs and not self.document,
            team=bool(team) and turn.speaker is None,
            document=self.document and bool(self.headings.text),
            elided=alone or (clause.found is not None and not first),
        )
        start, type_, puts_right = clause.start, verdict.type, self.puts_right
        if question:
            text = f"{question} – {speaker.shown}: {wording.cleaned(said)}"
        elif led := self._take_back(before):
            puts_right = False  # of the fact that was stated just before
            # The heading, and who speaks, stand before the first of the two.
            text = wording.stand_alone(said, replace(context, heading=""), language, when)
            who = f"{speaker.shown}{': ' if language.spaced else '：'}"
            named = heading or speaker.shown in led.text or not text.startswith(who)
            text = f"{'' if named else who}{led.text} {text.removeprefix(who)}"
            start, found = led.span.start, found or (before.found if before and led.fact else None)
            type_ = type_ if type_ is MemoryType.DECISION else led.type
        else:
            text = wording.stand_alone(said, context, language, when)
        self.silent = False
        self.before = self.said_by[self.speaker.shown] = _Before(said, clause.start, found)
        if len(text) > TEXT_CHARS_MAX:
            return
        began_at = when.at if when and past and when.at < base else None
        self.before.kept = Candidate(
            text=text,
            type=type_,
            span=self._cited(start, clause.end),
            fact=found.fact if found else None,
            confidence=verdict.confidence,
            importance=importance(said),
            valid_from=began_at or began(said, base, past=past),
            correction=bool(found and (found.replaces or found.ended or puts_right)),
            replaces=found.replaces if found else None,
        )
        self.kept.append(self.before.kept)
