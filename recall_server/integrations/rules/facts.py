"""Finds the fact of a clause (entity, attribute, value) by the attribute table of a language."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from typing import NamedTuple

from recall_server.domain.attributes import normal_attribute
from recall_server.domain.memory import Fact
from recall_server.integrations.rules.language import Table, roles_of, shape, table

_SUBJECT_WORDS_MAX, _PAIR_CHARS_MAX = 5, 80


@dataclass(frozen=True)
class Speaker:
    """The person or thing that an elided or first-person subject refers to."""

    entity: str
    shown: str


@dataclass(frozen=True)
class Found:
    """A fact, the value that it replaces, and its subject; `ended`: the value no longer holds."""

    fact: Fact
    replaces: str | None = None
    subject: str = ""
    ended: bool = False


def is_of(kind: str, of: Found | str) -> bool:
    """Return whether an attribute is of a kind of the common table."""
    attribute = of if isinstance(of, str) else of.fact.attribute
    names = table("common").data["attributes"][kind].split()
    return any(attribute == one or (one[-1] == "_" and attribute.startswith(one)) for one in names)


class _Row(NamedTuple):
    attribute: str
    pattern: re.Pattern[str]
    anchored: bool
    flags: frozenset[str]


class _Patterns(NamedTuple):
    """The compiled patterns of a language; `split`: where a sentence may be cut, `time`: a time
    after a value, `filler`: words left out.
    """

    rows: tuple[_Row, ...]
    subject: re.Pattern[str]
    split: re.Pattern[str]
    time: re.Pattern[str]
    filler: re.Pattern[str]
    contractions: list[tuple[re.Pattern[str], str]]


@cache
def patterns(name: str) -> _Patterns:
    """Return the compiled patterns of a language's facts."""
    language = table(name)
    data, rows, numbers = language.data, [], count()
    for attribute, written, *flags in data["facts"]["rows"]:
        anchored = written.startswith("{x} ") and language.spaced
        row = _filled(written[4:] if anchored else written, language)
        # No two groups may have one name: "o" becomes "o0".
        row = re.sub(r"\(\?P<(\w)>", lambda group: f"(?P<{group[1]}{next(numbers)}>", row)
        rows.append(_Row(attribute, re.compile(row), anchored, frozenset(flags)))
    the, things = data["facts"]["the"], "|".join(words for _, words in data["facts"]["things"])
    return _Patterns(
        tuple(rows),
        re.compile(data["facts"]["subject"]),
        re.compile(
            # "My landlord is Mr Ode, rent is 950": each may change by itself.
            rf"{data['patterns']['split']}"
            rf"|[,，]\s?(?:(?:and|und|y|et) )?(?=(?:(?:{the}) ?)?(?:{things})(?!\w))",
            re.IGNORECASE,
        ),
        re.compile(_filled(data["facts"]["after"], language)),
        re.compile(rf"(?<![\w'])(?:{data['filler']})(?![\w'])[ ]?", re.IGNORECASE),
        [(re.compile(short, re.IGNORECASE), long) for short, long in data["contractions"]],
    )


def _filled(written: str, language: Table) -> str:
    """Return a pattern of a table with the patterns and words that its holes stand for."""
    given, lists = language.data["facts"], ("months", "weekdays", "numbers")
    holes = {
        **given["parts"],
        "x": given["subject"],
        "k": f"(?P<k>(?i:{'|'.join(words for _, words in given['things'])}))",
        "times": language.times.pattern,
        **table("common").data["holes"]["spaced" if language.spaced else "unspaced"],
        **{one: f"(?i:{language.data[one].replace(' ', '|')})" for one in lists},
        "stop": rf" (?:{given['stop']})\b" if language.spaced else f"(?:{given['stop']})",
    }
    for hole, pattern in holes.items():
        written = written.replace(f"{{{hole}}}", pattern)
    return written


def plain(text: str, language: Table) -> str:
    """Return a clause without contractions and filler words, as the rows of the tables expect."""
    text, found = text.replace("’", "'"), patterns(language.name)
    for short, long in found.contractions:
        text = short.sub(long, text)
    return found.filler.sub("", text).strip() if language.spaced else text


@lru_cache(maxsize=64)
def find_fact(text: str, speaker: Speaker, language: Table) -> Found | None:
    """Return the fact that a clause states, if the table of its language has it."""
    said = plain(text, language)
    # Many chats are in lower case: "plumber moved to friday". But "Love and acceptance" and "Enjoy
    # the day" state nothing about the speaker.
    english, capital = language.name == "en", said[:1].isupper()
    swaps = language.starts("keep.elided", said) if english and capital else english or capital
    for one in (said, said[:1].swapcase() + said[1:]) if swaps else (said,):
        if found := _denied(one, _find(one, speaker, language), speaker, language):
            return _replacing(one, found, language)
    return None


def _denied(said: str, found: Found | None, speaker: Speaker, language: Table) -> Found | None:
    """Return the fact of a clause, negated if the clause denies it: "I no longer work at Acme"."""
    for written, positive, *flags in language.data["facts"]["denied"]:
        cue = re.search(written, said, re.IGNORECASE)
        if cue is None:
            continue
        cuts = [0, *(cut.end() for cut in shape("rest").finditer(said)), len(said)]
        first = max(cut for cut in cuts if cut <= cue.start())
        part = said[first : min(cut for cut in cuts if cut >= cue.end())]
        inside, ended = found is not None and found.fact.value in part, "ended" in flags
        if found and inside and found.fact.negated:
            return replace(found, ended=ended)
        held = said[: cue.start()] + cue.expand(positive) + said[cue.end() :]
        other = _find(held, speaker, language)
        if found and found == other and re.search(language.data["no_more"], said):
            return found  # "Ich wohne in Berlin, nicht mehr in Köln" denies the other value.
        if other is None or other.fact.value not in part:
            return found
        if found is None or inside:
            fact = replace(other.fact, negated=not other.fact.negated)
            return Found(fact, None, other.subject, ended)
        same = ended and other.fact.attribute == found.fact.attribute
        return replace(found, replaces=other.fact.value) if same else found
    return found


def _replacing(said: str, found: Found, language: Table) -> Found:
    """Add the value that "X, not Y", "X now, not Y any more" or "no longer Y but X" replaces."""
    fact, data = found.fact, language.data
    rather = re.match(data["rather"], said.partition(fact.value)[2])
    if found.ended and fact.negated and rather:
        held = replace(fact, value=rather["v"].strip(), negated=False)
        return replace(found, fact=held, replaces=fact.value)
    ended = re.search(data["no_more"], said)
    match = ended or re.search(data["instead"], said)
    if match is None or found.replaces or fact.negated:
        return found
    beside = said[: match.start()].endswith(fact.value) or fact.attribute.startswith("uses_for_")
    old = patterns(language.name).time.sub("", match["o"]).strip()
    return replace(found, replaces=old) if ended or beside or not language.spaced else found


def _find(said: str, speaker: Speaker, language: Table) -> Found | None:
    rows, subject = patterns(language.name).rows, patterns(language.name).subject
    for row in rows:
        if not row.anchored and (match := row.pattern.search(said)):
            return _found(row, match, "", speaker, language)
    blanks = [match.start() for match in re.finditer(" ", said)]
    for start in [0, *(match.end() for match in shape("rest").finditer(said))][:6]:
        # "I live in Rome and work at Acme", but not "My wife lives in Rome and works at Acme".
        third = language.starts("words.elided", said[start:])
        goes_on = not start or (third is None and speaks(said[:start], language))
        ends = [end for end in blanks if end > start][:_SUBJECT_WORDS_MAX]
        begun = [(said[start:end], end + 1) for end in ends if subject.fullmatch(said, start, end)]
        for whom, at in [*begun, ("", start)]:
            for row in rows if whom or goes_on else ():
                if row.anchored and (match := row.pattern.match(said, at)):
                    return _found(row, match, whom, speaker, language)
    return None


def is_owned(text: str, language: Table) -> bool:
    """Return whether a text begins with the speaker's possessive: "My wife is vegan"."""
    return re.match(rf"(?:{language.data['facts']['my']}) ", text, re.IGNORECASE) is not None


def speaks(text: str, language: Table) -> bool:
    """Return whether the speaker is a subject in a text."""
    if language.name == "es":  # where the verb tells
        return language.has("words.first", text)
    first = language.data["facts"]["first"]
    if shape("reports").match(text):
        return False
    return re.search(rf"(?<!\w)(?:{first})(?!\w)", text, re.IGNORECASE) is not None


def _found(
    row: _Row, match: re.Match[str], whom: str, speaker: Speaker, language: Table
) -> Found | None:
    parts = {name[0]: said for name, said in match.groupdict().items() if said}
    whom = parts.get("x") or whom
    if not (whom or "k" in parts or language.spaced):
        before = match.string.partition(parts.get("v", ""))[0]
        goes_on = "，" in before and not language.has("words.first", before)
        if goes_on or any(language.has(f"words.{one}", before) for one in ("relation", "person")):
            return None  # "小王吃素，对花生过敏"
    attribute = _key(parts.get("k", ""), "things", language) or row.attribute
    value = parts.get("v", "").strip(" \"'“”*_`").rstrip(".,")
    if not (is_of("timed", attribute) or attribute.endswith("_date")):
        amount, value = value, patterns(language.name).time.sub("", value)
        if "k" in parts and re.search(r"\d", amount) and not re.search(r"\d", value):
            # "The rent is due on the 25th" says when, not how much.
            return None
    value = shape("my").sub(lambda my: "them" if my[0].lower() == "me" else "their", value)
    away = [language.starts(f"words.{cue}", value) for cue in ("pronoun", "subject", "you")]
    away += [language.starts(f"words.{cue}", whom) for cue in ("pronoun", "you")]
    # "The deposit is 50" is no age, but "our son is 5" is.
    thing = re.match(rf"(?:{language.data['facts']['the']})(?: |$)", whom, re.IGNORECASE)
    amount = thing and attribute == "age" and not language.has("words.relation", whom)
    article = thing and thing[0] == whom  # "Le bois est sec."
    if not value or amount or article or any(away) or language.has("words.vague", value):
        return None
    if "p" in parts:
        attribute = normal_attribute(attribute.replace("{p}", parts["p"]))
    spoken = language.has("words.we", match[0]) and not language.has("words.first", match[0])
    team = not whom and ("k" in parts or spoken)
    entity, own = "team" if team else _entity(whom, speaker, language), "own" in row.flags
    if (attribute, entity) in (("schedule", speaker.entity), ("lives_in", "team")) and not own:
        return None  # "I go every Saturday", "We moved from Slack to Zulip"
    entity = speaker.entity if own and entity == "team" else entity  # "We live in Oslo."
    fact = Fact(entity, attribute, value, "not" in row.flags)
    return Found(fact, parts.get("o", "").strip() or None, whom)


def _entity(whom: str, speaker: Speaker, language: Table) -> str:
    """Return the entity of a subject: "user", "team", "user's sister", a name, or a thing."""
    facts = language.data["facts"]
    whom = whom.strip(" ,")
    if not whom or re.fullmatch(facts["first"], whom, re.IGNORECASE):
        return speaker.entity
    if re.fullmatch(facts["we"], whom, re.IGNORECASE):
        return "team"
    owned = re.match(rf"(?:{facts['my']})(?: |$|(?=[^\x00-\u2fff]))", whom, re.IGNORECASE)
    if owned:
        name = re.search(r" (?P<name>[A-ZÀ-Þ]\w+(?: [A-ZÀ-Þ]\w+)*)$", whom)
        name = name if language.name != "de" else None
        thing = whom[owned.end() :]
        return name["name"] if name else f"{speaker.entity}'s {thing}" if thing else speaker.entity
    return re.sub(rf"^(?:{facts['the']}) ", "", whom, flags=re.IGNORECASE)


def of_pair(key: str, value: str, speaker: Speaker, language: Table) -> Found | None:
    """Return the fact of a `Key: value` line, if the table has its key."""
    attribute = _key(key.strip(), "keys", language)
    several = re.search(r"\w[:：] | \| ", value)  # "Moewe, password: Krabbe"
    is_role = value.lower() in roles_of("users") | roles_of("silent")  # "role: user" of a chat
    if attribute is None or several or is_role or len(value) > _PAIR_CHARS_MAX:
        return None
    shared = is_of("of_things", attribute) and speaker.entity == "user"
    return Found(Fact("team" if shared else speaker.entity, attribute, value.strip(" *`.")))


def _key(word: str, names: str, language: Table) -> str | None:
    """Return the attribute that a word stands for, by a list of attributes and patterns."""
    rows = language.data["facts"][names]
    return next((one for one, words in rows if re.fullmatch(words, word, re.IGNORECASE)), None)
