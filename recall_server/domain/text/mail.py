"""The parts of mails and letters that name who writes, to whom and when, and that are not what is
said: the head of a mail, the line above a quoted one, the greeting and the name at the end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from recall_server.domain.text.stamps import DATE

# The lines of the head of a mail; a ruled line; the greeting that opens a letter.
_LINE = (
    r"(?:from|to|cc|bcc|date|sent(?:[ ]on)?|subject|reply-to|von|an|gesendet(?:[ ]am)?|datum"
    r"|betreff|de|à|para|envoyé(?:[ ]le)?|objet|asunto|fecha|enviad[oa](?:[ ](?:el|em))?|assunto"
    r"|van|aan|verzonden|onderwerp|发件人|收件人|主题|差出人|宛先|件名|日時)"
    r"[ ]?[:：][ \t]*\S[^\n]*+"
)
_OPENING = r"[^\W\d_][^.!?:,;\n]{1,40},"
LEAD = re.compile(rf"[ \t]*+(?:{_LINE}|[-*_=~]{{3,}}+|{_OPENING})[ \t]*+", re.IGNORECASE)
TITLES = re.compile(
    rf"(?:[ \t]*+(?:#{{1,6}}[ \t][^\n]*+|{_LINE}|[-*_=~]{{3,}}+|{_OPENING})[ \t]*+(?:\n\s*+|\Z))+",
    re.IGNORECASE,
)
# A letter ends before another mail, a ruled line, or a quoted one.
ENDS_LETTER = re.compile(rf"{LEAD.pattern}|>", re.IGNORECASE)
DATE_LINE = re.compile(
    r"\s*(?:date|sent(?:[ ]on)?|datum|gesendet(?:[ ]am)?|fecha|envoyé(?:[ ]le)?"
    r"|enviad[oa](?:[ ](?:el|em))?|verzonden|日時)[ ]?[:：][^\n]*+\s*",
    re.IGNORECASE,
)
FAREWELL = re.compile(r"(?:[^\W\d_][\w'’ -]{0,24},?\s*\n){0,2}[^\W\d_][\w'’. -]{0,24}")

_WORD = r"[\w][\w.'’-]{0,30}"
# Above a comment or an answer: "mlin requested changes:", "Ana Kim commented on May 3, 2024".
SAYS_BELOW = re.compile(
    rf"\s{{0,8}}(?!(?:he|she|it|they|we|i|you|who|er|sie|es|wir|ich)\b)"
    rf"(?:\*\*)?(?P<name>@?{_WORD}(?:[ ]{_WORD}){{0,2}})(?:\*\*)?[ ]"
    r"(?:(?P<wrote>wrote|schrieb|escribió|a[ ]écrit)|commented|replied"
    r"|answered|added|asked|requested[ ]changes"
    r"|approved(?:[ ]these[ ]changes)?|antwortete|kommentierte|respondió|comentó"
    r"|a[ ](?:répondu|commenté))"
    r"(?:[ ](?P<stamp>on[ ][^\n:·]{0,9}\d[^\n:·]{0,12}|\d+[ ]\w+[ ]ago|yesterday|last[ ]\w+)"
    r"(?:[ ]·[ ]\w+)?:?|:)\s*",
    re.IGNORECASE,
)
_MAILBOX = r"[^\s()<>\[\]@:,;]{1,64}@[^\s()<>\[\]@:,;]{1,99}"
# "Kim, Ana (Sales) <ana@x.org>", "ana@x.org", "Ana Kim", also with an address.
_NAME = (
    r"(?:[\"']?(?P<full>[^\W\d_][^\n<>@\"\d]{0,59}?)[\"']?[ ]"
    rf"[(<\[]{{1,2}}{_MAILBOX}[)>\]]{{1,2}}|[<(\[]?(?P<address>{_MAILBOX})[)>\]]?"
    r"|\"?(?P<name>[^\W\d_][\w.'’-]{0,30}(?:[ ][\w.'’-]{1,30}){0,3})\"?"
    rf"(?P<known>[ ][(<\[]{{1,2}}{_MAILBOX}[)>\]]{{1,2}})?)"
)
_GROUP = re.compile(r"(?<=\(\?P<)(?=\w+>)")
_HEAD = re.compile(rf"(?:[ \t]*+{_LINE}(?:\n|\Z)){{2,10}}", re.IGNORECASE)
_FROM = re.compile(
    rf"^[ \t]*(?:from|von|de|van|发件人|差出人)[ ]?[:：][ \t]*{_NAME}[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
SUBJECT = re.compile(
    r"[ \t]*(?:subject|betreff|objet|asunto|assunto|onderwerp|主题|件名)[ ]?[:：]", re.IGNORECASE
)
_ABOUT = re.compile(rf"^{SUBJECT.pattern}", re.IGNORECASE | re.MULTILINE)
_SENT = re.compile(rf"^{DATE_LINE.pattern}", re.IGNORECASE | re.MULTILINE)
_STAMP = r"[^\n]{4,60}?\d\d(?:[ ]?[ap]\.?m\b\.?)?(?:[ ]Uhr)?"
# "On Mon, 11 Jan 2027 at 21:47, Ana Kim <ana@x.org> wrote:", which a mail program may have wrapped.
_QUOTES = re.compile(
    rf"[ \t]*(?:>[ ]?)*(?:on|le|el)[ ](?P<stamp>{_STAMP}),?[ ]{_NAME}"
    r"\s(?:wrote|a[ ]écrit|escribió)[ ]?:[ \t]*(?=\n|\Z)"
    rf"|[ \t]*(?:>[ ]?)*am[ ](?P<am>{_STAMP}),?\sschrieb[ ]{_GROUP.sub('de_', _NAME)}"
    r"[ ]?:[ \t]*(?=\n|\Z)",
    re.IGNORECASE,
)
# As a mail program shows it: "Ana Kim <ana@x.org>", then when, and "to me".
_OPENED = re.compile(
    rf"[ \t]*(?P<full>[^\W\d_][^\n<>@]{{0,59}}?)[ ]<{_MAILBOX}>(?:[ \t]+|[ \t]*\n)"
    r"(?P<stamp>[^\n]{0,30}\d\d?:\d\d[^\n]{0,20})\n[ \t]*(?:to|an|à|a|para)[ ][^\n]{1,80}(?=\n|\Z)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\s*((?:>[ \t]?)+)")


class Sender(NamedTuple):
    """The writer of what follows, and the time; `begins`: where the words begin; `end`: where the
    lines end that tell it; `addressed`: an address is told.
    """

    name: str
    stamp: str
    begins: int
    end: int
    addressed: bool = False


def depth(text: str, at: int) -> int:
    """Return how often the next line that is not blank is marked as quoted."""
    marks = _QUOTED.match(text, at)
    return marks[1].count(">") if marks else 0


def sender_at(text: str, start: int) -> Sender | None:
    """Return the sender that the head of a mail, or the line above a quoted one, names at this
    place; None if there is none.
    """
    if (line := _QUOTES.match(text, start)) is not None:
        of = "de_" if line["am"] else ""
        return _sender(line, line["stamp"] or line["am"], line.end(), line.end(), of)
    if (opened := _OPENED.match(text, start)) is not None:
        # "Mon, Jan 11, 9:12 AM" names no year, and so no day.
        stamp = opened["stamp"] if DATE.search(opened["stamp"]) else ""
        return Sender(_tidy(opened["full"]), stamp, opened.end(), opened.end(), addressed=True)
    head = _HEAD.match(text, start)
    if head is None or not _ABOUT.search(head[0]):
        return None
    sender, sent = _FROM.search(head[0]), _SENT.search(head[0])
    if sender is None:
        return None
    # The other lines of the head are read with what is said.
    begins = start + sender.end() if sender.start() == 0 else start
    return _sender(sender, sent[0] if sent else "", begins, head.end())


def _sender(found: re.Match[str], stamp: str, begins: int, end: int, of: str = "") -> Sender:
    full, address, name = (found[f"{of}{group}"] for group in ("full", "address", "name"))
    addressed = not name or found[f"{of}known"] is not None
    return Sender(_tidy(full) if full else address or name, stamp, begins, end, addressed)


def _tidy(name: str) -> str:
    """Return "Kim, Ana (Sales)" as "Ana Kim"."""
    name = re.sub(r"[ ]?\([^()]*\)", "", name).strip(" '\"") or name
    last, comma, first = name.partition(", ")
    return f"{first} {last}" if comma and "," not in first else name
