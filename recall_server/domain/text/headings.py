"""Recognizes lines without a mark that are headings: they name what stands below them."""

import re

HEADING_CHARS_MAX = 80
_NAME_WORDS_MAX, _CAPTION_WORDS_MAX = 7, 4
ASIDE = re.compile(r"\([^()]*\)")
# "TOP 1", "Voice memo 2", but not "Part 2 is here".
NUMBERED = re.compile(
    r"(?:top|punkt|(?:voice )?memo|recording|session|entry|item|section|part|teil|abschnitt|chapter"
    r"|kapitel|point|partie|chapitre|punto|sección|capítulo|parte)[ ]?\d{1,3}(?!\w)"
    r"(?![ ](?:is|was|has|ist|war|hat|est)\b)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[ \t]*\(?\d{1,2}[.)][ \t]+")
_LIST = re.compile(r"[ \t]*(?:[-*•+–·▪●・→]|->|\[[ xX]\]|1[.)])[ \t]+\S")
_PAIR = re.compile(r"[ \t]*[^\W_][^\n:：*?!.;,|\"“„]{0,38}(?::[ \t]+|：)\S")
# A sentence of more words than a caption, or a long line.
_SAID = re.compile(r"(?:\S+[ ]+){4}[^\n]*?\.(?=\s|$)|[^\n]{60}")
_ENDED = re.compile(r"[.!?。！？,;，、]$|(?:[^\W\d_]{5}\.|[!?])[ \t]+[^\W\d]|[。！？\n]")
# "e.V." at the end of a title is no end of a sentence.
_SHORT_FORM = re.compile(r"(?<!\w)(?:\w{1,2}\.){2,}$")
# How messages, answers and sentences begin, and how letters end.
_TALK = re.compile(
    r"(?:Hi|Hey|Hello|Dear|Thanks|Thank|Cheers|Sorry|Hallo|Moin|Liebe[rs]?|Danke|Viele|Hola|Gracias"
    r"|Saludos|Bonjour|Bonsoir|Salut|Merci|I|We|You|He|She|It|They|Ich|Wir|Du|Er|Sie|Es|Je|Nous|Il"
    r"|Elle|Yo|(?:Ok|OK|Okay|Yes|No|Best|Regards|Love|Ja|Nein|Sí|Oui|Non|LG|VG|MfG)$)(?!\w)"
)


def may_name(line: str) -> bool:
    """Return whether a line is short, and is no sentence, greeting or answer."""
    ended = _ENDED.search(line) and not _SHORT_FORM.search(line)
    return 0 < len(line) <= HEADING_CHARS_MAX and not ended and not _TALK.match(line)


def is_heading(line: str, below: str, *, first: bool) -> bool:
    """Return whether a line, the `first` of its paragraph or not, is the heading of a numbered
    part, or of the list or the paragraph `below`.
    """
    number = _NUMBER.match(line)
    line, below = line[number.end() if number else 0 :].strip(), below.lstrip("\n")
    words = len(ASIDE.sub("", line).split())
    if words > _NAME_WORDS_MAX or not may_name(line) or _PAIR.match(line):
        return False
    if NUMBERED.match(line):
        return True
    if not line[0].isupper() or not below.strip():
        return False
    if number:
        return words <= _CAPTION_WORDS_MAX and not _NUMBER.match(below)
    if _LIST.match(below):
        return True
    names = first and words <= _CAPTION_WORDS_MAX
    return names and bool(_PAIR.match(below) or _SAID.match(below))
