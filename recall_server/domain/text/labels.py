"""The labels of a text: what names, at the beginning of a line or above it, who speaks and when."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from recall_server.domain.text.attribution import (
    DATE,
    MAIL_DATE,
    SAYS_BELOW,
    begins_with_day,
    is_moment,
    without_moment,
)
from recall_server.domain.text.messages import TOOL

SYSTEM = "system"
HEADING_CHARS_MAX = 120
_HEADING_WORDS_MAX = 4
_LABEL_CHARS_MAX = 160
_NAME_WORDS_MAX = 7


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEFTOVER = re.compile(r"[^\W_][^\s|()（）・]*")
_FILLER = _words(
    "on at the of date t mon tue wed thu fri sat sun gmt utc monday tuesday wednesday thursday"
    " friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag"
    " lunes martes miércoles jueves viernes sábado domingo lundi mardi mercredi jeudi vendredi"
    " samedi dimanche den el le de 日 月 火 水 木 金 土 祝"
)
_RELATIVE = _words("today yesterday um heute gestern a las hoy ayer à aujourd'hui hier")
_OCCASIONS = _words(
    "session conversation chat day log transcript meeting standup call notes diary journal entry"
    " part week dialogue thread interview"
)
_HEADING = re.compile(
    r"\s*(?:[-=*_~]{2,}|#{1,6}\s|date\s*:|session\b|(?:mon|tues|wednes|thurs|fri|satur"
    r"|sun)day,? |[^\W\d_]{4,10},? (?:(?:den|el|le) )?\d|\[?\(?\d|[A-Z][a-z]{2,8} \d)",
    re.IGNORECASE,
)
_SESSION = re.compile(
    r"\s*[-=*_~#]*\s*(?P<session>session[ _#-]{0,2}\w{1,12})\s*[-=*_~#:]*\s*", re.IGNORECASE
)

_EMOJI = r"[\U0001f000-\U0001faff☀-➿\ufe0f\u200d]{1,8}"
_WORD = r"[\w][\w.'’-]{0,30}"
_LABEL = re.compile(
    r"\s{0,8}(?:[-*>]\s{1,3})?"
    r"(?:\[(?P<before>[^\[\]\n]{3,40})\]\s{0,3}"
    # As a messenger exports a chat, "02.10.26, 18:03 - Ana: hi", and of a call: "00:12 Ana: hi".
    r"|(?P<since>\d{1,4}[./-]\d\d?(?:[./-]\d{2,4})?\.?,?\ "
    r"\d\d?:\d\d(?::\d\d)?(?:\ ?[ap]m)?)\ [-–]\ "
    # And of a video call: "(00:12) Ana: hi", "09:14:02 From Ana to Everyone: hi".
    r"|\(?(?P<clock>\d\d?:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:\ ?[ap]m)?)\)?(?:\ [-–])?\ "
    r"(?P<sent>From\ )?)?"
    r"(?P<stars>\*{2}|__)?(?P<bracket>\[)?[~^*]?"
    rf"(?P<name>(?P<handle>@)?{_WORD}(?:[ ]{_WORD}){{0,3}}|(?<=[ ][-–][ ])\+\d[\d ]{{6,18}}\d)"
    rf"[~^*]?(?:[ ]?{_EMOJI})?(?(bracket)\])(?(sent)\ to\ [^\n:]{{1,60}})"
    r"(?:\s{0,3}[(\[](?P<after>[^()\[\]\n]{3,40})[)\]])?"
    r"(?:(?:(?(stars)(?:\*{2}|__))\s?:|:(?(stars)(?:\*{2}|__)))(?=\s|$)"
    # In a script without capitals, also without a blank: "美咲:はい".
    r"|(?P<wide>：|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]):(?=[^\s/])))"
)
# A day and a time as a messenger exports a chat; the name in its contacts may be "Mum ❤" or "~ Jo".
_DATED = (
    r"\d{1,4}[./-]\d\d?(?:[./-]\d{2,4})?\.?,?[ ]\d\d?:\d\d(?::\d\d)?(?:[ \u202f\xa0]?[APap][Mm])?"
)
_EXPORTED = re.compile(
    rf"\s{{0,8}}[\u200e\u200f]?(?:\[(?P<before>{_DATED})\]|(?P<since>{_DATED})\s[-–])"
    r"\s[~\s\u200e\u202f]{0,4}(?P<name>[^\s:\"“„«<>\[\]](?:[^\n:\"“„«<>\[\]]{0,38}[^\s:\"“„«<>\[\]])?)"
    r"[ \u202f\xa0]?:(?=\s|$)"
)
_NOTICE_WORDS = _words(
    "created added changed left joined removed deleted pinned set hat haben ha han creó añadió"
    " cambió salió eliminó a ont"
)
# "02.10.26, 18:03 - Ana created this group", "[18:03] * ana has joined": of the messenger itself.
_NOTICE = re.compile(
    rf"\s{{0,8}}(?:(?P<stamp>{_DATED})\ [-–]"
    r"|\[(?P<clock>\d\d?:\d\d(?::\d\d)?)\]\ (?:\*{1,3}|-!-))\ "
)
# In a chat with times, "[21:14] <tess> hi"; in captions, "<v Ana Kim>hi</v>".
_ANGLED = re.compile(
    r"\s{0,8}(?:\[?(?P<stamp>(?:[^\[\]<\n]{0,20}[ T])?\d\d?:\d\d(?::\d\d)?)\]?\s{1,3}|(?=<v[ .]))"
    rf"<(?P<voice>v(?:\.[\w.-]+)?[ ])?[@+%~&]?(?P<name>{_WORD}(?:[ ]{_WORD}){{0,3}})>\s?"
)
# The lines above the words of captions (WebVTT, SubRip): their number, and their times.
_CAPTION_TIMES = r"(?:\d\d?:)?\d\d?:\d\d[.,]\d{3} --> (?:\d\d?:)?\d\d?:\d\d[.,]\d{3}[^\n]*"
_CAPTION = re.compile(
    rf"[ \t\ufeff]*(?:{_CAPTION_TIMES}|\d\d:\d\d:\d\d|\d{{1,6}}[ \t\r]*(?=\n{_CAPTION_TIMES})"
    r"|WEBVTT(?:[ \t\r][^\n]*)?)(?![^\n])"
)
# The line above a message in a work chat: "Ana Kim  9:03 AM", "Ana — Today at 9:03", "[9:03] Ana".
_CLOCK = r"\d\d?:\d\d(?::\d\d)?(?:[ ]?[ap]\.?m\.?)?"
_ASIDE = (
    r"[ ]{1,2}(?:\([^()\n]{1,30}\)|\[[^\[\]\n]{1,30}\]|:[a-z0-9_+'-]{1,30}:|APP|BOT"
    rf"|{_EMOJI})"
)
_ABOVE = re.compile(
    rf"\s{{0,8}}(?:\*\*)?(?P<name>@?{_WORD}(?:[ ]{_WORD}){{0,3}})(?:\*\*)?(?:{_ASIDE}){{0,3}}"
    r"(?:[ ]{1,4}|[ ]?[-–—,|·][ ]?)"
    rf"[\[(]?(?P<stamp>(?:[^\n:\]]{{0,30}}?[ ,])??{_CLOCK})[\])]?\s*",
    re.IGNORECASE,
)
_ABOVE_TIMED = re.compile(
    rf"\s{{0,8}}\[(?P<stamp>{_CLOCK})\][ ]{{1,4}}(?P<name>@?{_WORD}(?:[ ]{_WORD}){{0,3}})\s*",
    re.IGNORECASE,
)
# Below such a line, whose message it is that somebody passes on.
_FORWARDED = re.compile(
    r"\[(?:forwarded from|weitergeleitet von|reenviado de|transféré de):? "
    rf"(?P<name>{_WORD}(?:[ ]{_WORD}){{0,3}})\]\s*",
    re.IGNORECASE,
)
# "<ana> hi" and "Ana – hi" are labels only if every line has one, "ana: hi" if most have.
_UNSURE = re.compile(
    rf"\s{{0,8}}(?:<[@+%~&]?(?P<nick>{_WORD})>|(?P<name>{_WORD}(?:[ ]{_WORD}){{0,2}})[ ][-–—])"
    r"[ ]{1,4}(?=\S)"
)
# Of LINE: "20:11", the name and the words, with tabs between them; a copy may have blanks instead.
APART = re.compile(
    r"\s{0,8}(?P<stamp>\d\d?:\d\d(?:[ ][ap]m)?)(?:\t(?P<name>[^\t\n]{1,40})\t"
    r"|[ ]{1,3}(?P<short>[^\W\d_]{1,10})[ ]{1,3})(?=\S)",
    re.IGNORECASE,
)
# Above what is said in a copied session with an agent: "## User", "**Assistant**", "You said:".
_ROLE_ABOVE = re.compile(
    r"(?:#{1,6}[ ]+|\*\*|(?=[A-Za-z]{2,12} said:))"
    r"(?P<name>[A-Za-z]{2,12})(?P<said>[ ]said)?[ ]?:?(?:\*\*)?:?[ \t]*"
)
# Of a session with a coding agent in a terminal: what is asked, what it answers, and "⎿ what a tool
# returned" below that.
_PROMPT = re.compile(r"(?:(?P<user>[>❯›])|(?P<assistant>[●⏺✦•])|[ ]{1,4}⎿)[ \t\xa0]+(?=\S)")
_PROMPTS = re.compile(r"^[>❯›●⏺✦•](?=[ \t\xa0]+\S)", re.MULTILINE)
# Only a session has the output of a tool, or the call of one.
_TOOLED = re.compile(
    r"^(?:[ ]{1,4}[⎿└]|[●⏺✦•][ \t\xa0]+(?:[A-Z]\w+\(|(?:Ran|Edited|Explored|Read|Added)[ ]))",
    re.MULTILINE,
)
_QUOTE = re.compile(r"^>[^\n]*\n>", re.MULTILINE)
_BOX = frozenset("│╭╰╔║╚┌└├✻▐▝▘*")
_ANSWERS = {prompt + answer for prompt in ">❯›" for answer in "●⏺✦"} | {"›•"}
ROLES = _words(
    "user assistant human ai system agent bot model customer client operator me you chatgpt claude"
    " gpt gemini grok deepseek perplexity copilot cursor codex tool developer interviewer"
    " interviewee host guest nutzer nutzerin benutzer benutzerin kunde kundin assistent assistentin"
    " ki usuario usuaria cliente clienta asistente ia utilisateur utilisatrice assistante"
    " 用户 客户 顾客 助手 助理 客服 机器人 ユーザー お客様 利用者 アシスタント ボット"
    " 自動応答 システム"
)
# Roles that are also keys, as in "Host: example.org" and "Customer: Ines Kolb".
ROLES_OR_KEYS = _words(
    "system agent bot model customer client operator tool developer host guest kunde kundin cliente"
    " clienta 客户 顾客 お客様 利用者 システム"
)
_PARTICLES = _words("de del der di da du van von la le el al bin ben of the and")
_NOT_SPEAKERS = _words(
    "note notes todo fixme re fwd fw subject from to cc bcc date time step steps example examples"
    " warning tip hint summary question answer decision decisions goal goals action actions update"
    " updates ps fyi important remember reminder reason result results problem solution issue"
    " context background agenda title name email phone address language editor theme location"
    " status priority owner deadline due version type tags topic topics source sources usage input"
    " output returns raises args pros cons plan next caveat conclusion correction edit disclaimer"
    " http https ftp mailto file key value description requirements ingredients directions"
    " favourite favorite likes dislikes hobbies hobby preference preferences fact facts job age"
    " diet timezone budget database stack tools framework process procedure workflow"
    " error info debug warn fatal trace critical observation thought lesson who what when where why"
    " how which sent received my our mein meine unser unsere nuestro nuestra notre present absent"
    " recorded duration participants attendees speakers"
    " asistentes author committer commit merge resolved approved agreed rejected deferred"
    " beschluss beschlossen anwesend entschuldigt protokoll acuerdo acuerdos présents excusés"
    " décision korrektur richtigstellung corrección rectificación rectification"
    " frage antwort beispiel pregunta respuesta ejemplo réponse exemple prompt sentence text"
    " translate translation summarize summarise proofread rewrite rephrase paraphrase shorten"
    " übersetze übersetzung korrigiere zusammenfassung traduce traducción corrige resumen resume"
    " week day month woche tag semana día semaine jour phase sprint lesson task aufgabe tarea tâche"
    " ad poll quiz story joke quote riddle headline traduis traduction résumé 翻译 翻訳 总结 要約"
    " 时间 地点 日期 姓名 备注 电话 地址 主题 标题 日時 場所 名前 備考 時間 住所 趣味"
)
# Keys of notes, word lists and changes, in small letters.
_SMALL_KEYS = _words(
    "good bad best worst high low breakfast lunch dinner supper snack snacks morning noon afternoon"
    " evening night fix feat feature chore docs refactor perf test style build revert left right"
    " before after old new now then start stop keep want need like dislike love hate well improve"
    " mood sleep food weather dream work home health money family doing done blocked blockers wins"
    " fails expected actual given and but or if else off on yes no pro con rule"
    " role content message name type prompt response greet hello bye welcome open close click run"
    " added fixed changed removed deprecated security image command"
    " en de fr es it pt nl ja zh gut schlecht frühstück mittag mittagessen abendessen morgens"
    " abends bueno malo desayuno almuerzo cena bien mal matin midi soir déjeuner dîner"
)
_FAULTS = ("Error", "Exception", "Warning")


class Line(NamedTuple):
    """A line of the text: where it and its words begin, where it ends, and its label. `timed`: the
    label has a moment that only a label has. `above`: it is a line of its own, above the words.
    `says`: it says that somebody speaks; `of_mail`: that somebody writes a mail; `unsure`: it may
    be no label; `code`: it is in a fence. A heading that is `blank` is that of a caption. `ends`:
    the beginning of what is not said by that speaker any more.
    """

    start: int
    said_from: int
    end: int
    name: str | None = None
    stamp: str | None = None
    heading: bool = False
    blank: bool = False
    timed: bool = False
    above: bool = False
    says: bool = False
    of_mail: bool = False
    unsure: bool = False
    code: bool = False
    ends: re.Pattern[str] | None = None


def classify(text: str, start: int, end: int) -> Line:
    line = text[start : min(end, start + _LABEL_CHARS_MAX)]
    if not line.strip():
        return Line(start, start, end, blank=not text[start:end].strip())
    if end - start <= HEADING_CHARS_MAX and is_heading(line):
        return Line(start, end, end, heading=True)
    if _CAPTION.match(text, start):
        return Line(start, end, end, heading=True, blank=True)
    if above := _above(text, start, end):
        return above
    if label := _ANGLED.match(line):
        closed = len("</v>") if label["voice"] and text.endswith("</v>", start, end) else 0
        said = start + label.end()
        return Line(start, said, end - closed, _name(label), label["stamp"], says=True)
    return _labelled(line, start, end)


def _labelled(line: str, start: int, end: int) -> Line:
    """Return a line with the label that it begins with, if any."""
    label = _EXPORTED.match(line)
    if label and len(label["name"].split()) <= _NAME_WORDS_MAX and _is_contact(label["name"]):
        stamp, said = label["before"] or label["since"], start + label.end()
        # "[2026-05-02 10:00:00] INFO: started"
        if label["name"].isupper() and label["name"].lower() in _NOT_SPEAKERS:
            return Line(start, said, end, SYSTEM, stamp)
        return Line(start, said, end, _name(label), stamp, timed=True)
    label = _LABEL.match(line)
    # In a chat with times a name may be in lower case: "[10:02] tess: hi".
    before = label and (label["before"] or label["since"] or label["clock"])
    timed = bool(before) and is_moment(before or "")
    # "Nov 3: We met" is an entry of a log.
    if label and begins_with_day(f"{label['name']}: …"):
        return Line(start, start, end)
    if label and label["clock"] and not may_speak(label["name"], small=False):
        return Line(start, start, end)
    wide = label and label["wide"] and label["name"] not in _NOT_SPEAKERS
    if label and (label["handle"] or wide or may_speak(label["name"], small=timed)):
        stamp = before or label["after"]
        if before and not timed:
            return Line(start, start, end)
        marked = bool(stamp) and not label["clock"] and is_moment(stamp)
        return Line(start, start + label.end(), end, _name(label), stamp, timed=marked)
    if notice := _NOTICE.match(line):
        stamp = notice["stamp"] or notice["clock"]
        return Line(start, start + notice.end(), end, SYSTEM, stamp)
    small = label and not before and label["name"] not in _SMALL_KEYS
    if label and small and may_speak(label["name"], small=True):
        return Line(start, start + label.end(), end, _name(label), unsure=True)
    return _perhaps_labelled(line, start, end)


def _perhaps_labelled(line: str, start: int, end: int) -> Line:
    """Return a line with what is a label only if many lines have one, if it begins with any."""
    label = APART.match(line)
    if label and (label["name"] or has_no_case(label["short"])):
        name, unsure = label["name"] or label["short"], not label["name"]
        said = start + label.end()
        return Line(start, said, end, name, label["stamp"], timed=not unsure, unsure=unsure)
    label = _UNSURE.match(line)
    if label and (label["nick"] or may_speak(label["name"], small=False)):
        name = label["nick"] or label["name"]
        return Line(start, start + label.end(), end, name, unsure=True)
    return Line(start, start, end)


def _above(text: str, start: int, end: int) -> Line | None:
    """Return the line as a label above the words of a speaker; None if it is none."""
    label = _ROLE_ABOVE.fullmatch(text, start, end)
    if label and label["name"].lower() in ROLES:
        return Line(start, end, end, _name(label), above=True, says=bool(label["said"]))
    if label := _FORWARDED.fullmatch(text, start, end):
        return Line(start, end, end, _name(label), above=True, says=True)
    label = SAYS_BELOW.fullmatch(text, start, end)
    if label and may_speak(label["name"], small=True):
        wrote = label["wrote"] is not None
        stamp = label["stamp"]
        return Line(start, end, end, _name(label), stamp, above=True, says=True, of_mail=wrote)
    label = _ABOVE.fullmatch(text, start, end) or _ABOVE_TIMED.fullmatch(text, start, end)
    if label and _stands_above(label):
        dated = DATE.search(label["stamp"]) is not None
        return Line(start, end, end, _name(label), label["stamp"], above=True, says=dated)
    return None


def _name(label: re.Match[str]) -> str:
    """Return the speaker that a label names; "You" is the user of a session with an agent."""
    name = " ".join(label["name"].removeprefix("@").split())
    return "User" if name == "You" else name


def _is_contact(name: str) -> bool:
    """Return whether these are no words of a messenger: "Ana changed the subject to"."""
    return _NOTICE_WORDS.isdisjoint(name.split()[1:])


def is_heading(line: str) -> bool:
    if _SESSION.fullmatch(line):
        return True
    if not _HEADING.match(line) or not DATE.search(line):
        return False
    rest = without_moment(line)
    words = [word for word in _LEFTOVER.findall(rest) if word.lower().strip(":,") not in _FILLER]
    if words and not re.match(r"\s*(?:[-=*_~#]|date\b|session\b)", line, re.IGNORECASE):
        return False
    # A heading names what follows; "# Moved to Porto, 8 May 2023" is content and is kept.
    named = any(word.lower().rstrip("_0123456789") in _OCCASIONS for word in words)
    return len(words) <= (_HEADING_WORDS_MAX if named else 1)


def _stands_above(label: re.Match[str]) -> bool:
    """Return whether a line is a name and a moment, and nothing else."""
    rest = without_moment(label["stamp"])
    words = [word.lower().strip(",.") for word in _LEFTOVER.findall(rest)]
    name = label["name"].lower().split()
    return not (
        any(word not in _FILLER | _RELATIVE for word in words)
        or any(word in _FILLER | _RELATIVE | _NOT_SPEAKERS for word in name)
    )


def may_speak(name: str, *, small: bool) -> bool:
    words = name.split()
    # "Customer service", but not "User story".
    if name.lower() in ROLES or (
        words[0].lower() in ROLES and words[-1].lower() not in _NOT_SPEAKERS
    ):
        return True
    if words[0].lower() in _NOT_SPEAKERS or name.endswith(_FAULTS):
        return False
    if name.lower() in _FILLER and len(name) > 2:
        return False  # "Mon: Ana opens the shop"
    if small and len(words) == 1:
        return True
    if not words[0][0].isupper():
        return name.startswith("+") or has_no_case(name)  # of a phone
    return all(w[0].isupper() or w[0].isdigit() or w.lower() in _PARTICLES for w in words[1:])


def has_no_case(name: str) -> bool:
    """Return whether a name is in a script without capitals, as Chinese, Korean or Arabic."""
    return name[:1].isalpha() and name.lower() == name.upper()


def prompted(text: str, start: int, end: int) -> Line | None:
    """Return the line of a session with an agent with its mark as a label; None if it has none."""
    mark = _PROMPT.match(text, start)
    return mark and Line(start, mark.end(), end, mark.lastgroup or TOOL, says=True)


def is_session_with_agent(text: str) -> bool:
    """Return whether answers of an agent follow prompts, in the marks of a terminal, twice; and
    whether they are no quotes with lists below.
    """
    marks = list(_PROMPTS.finditer(text))
    if sum(one[0] + other[0] in _ANSWERS for one, other in pairwise(marks)) < 2:
        return False
    banner = map(str.lstrip, text[: marks[0].start()].split("\n"))
    begins = all(line[0] in _BOX for line in banner if line)
    return bool(_TOOLED.search(text) or (begins and not _QUOTE.search(text)))


def is_title(heading: str) -> bool:
    """Return whether a date heading also names what follows, such as "## 1.2.0 (2 May 2026)"."""
    words = (session_of(heading) or "").lower().split()
    names = [word for word in words if word not in _OCCASIONS and not word.strip("()#").isdigit()]
    return heading.lstrip().startswith("#") and bool(names) and not _OCCASIONS & {*words}


def is_key(heading: str, below: Line | None) -> bool:
    """Return whether a date heading is one of several keys with values: "Date: 2 May 2026" above
    "Place: Ludlow" may be the day of what the text is about.
    """
    goes_on = below is not None and not (below.blank or below.heading or below.name)
    return goes_on and MAIL_DATE.fullmatch(heading) is not None


def session_of(heading: str) -> str | None:
    rest = without_moment(heading)
    words = [word.strip(":,-=") for word in _LEFTOVER.findall(rest)]
    kept = [word for word in words if word and word.lower() not in _FILLER]
    return " ".join(kept) or None
