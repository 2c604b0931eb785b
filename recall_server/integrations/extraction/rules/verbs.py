"""The verbs that statements are built on: their forms, and how to say them of a third person."""

from __future__ import annotations

from dataclasses import dataclass

_VOWELS = "aeiou"


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as a set: a table of words reads best as words."""
    return frozenset(text.split())


# lemma, past, participle where they are not made with -ed
_IRREGULAR = """
be was been|have had had|do did done|go went gone|get got got|make made made|take took taken
buy bought bought|bring brought brought|build built built|begin began begun|become became become
break broke broken|catch caught caught|choose chose chosen|come came come|cut cut cut
draw drew drawn|drive drove driven|drink drank drunk|eat ate eaten|fall fell fallen
find found found|feel felt felt|fly flew flown|get got gotten|give gave given|grow grew grown
hear heard heard|hit hit hit|hold held held|hurt hurt hurt|keep kept kept|know knew known
lead led led|learn learnt learnt|leave left left|lose lost lost|mean meant meant|meet met met
pay paid paid|put put put|quit quit quit|read read read|ride rode ridden|run ran run
say said said|see saw seen|sell sold sold|send sent sent|set set set|shoot shot shot
sing sang sung|sleep slept slept|speak spoke spoken|spend spent spent|stand stood stood
swim swam swum|teach taught taught|tell told told|think thought thought|throw threw thrown
understand understood understood|wear wore worn|win won won|write wrote written
freeze froze frozen|split split split|cost cost cost|let let let|rebuild rebuilt rebuilt
overcome overcame overcome|rewrite rewrote rewritten|shut shut shut
"""
_REGULAR = """
prefer like love enjoy adore hate dislike detest despise loathe want need wish plan hope intend
aim live move relocate work use own adopt play study research train volunteer practice practise
teach decide agree settle pick opt switch migrate change replace drop standardise standardize
start stop finish complete launch open close join visit attend travel paint cook bake host
organize organise celebrate graduate retire marry date divorce propose order purchase rent
receive donate earn save sign enroll enrol register apply pass fail watch listen discover explore
try create design develop deploy ship release merge upgrade downgrade install implement refactor
rename remove delete add fix test require support manage supervise mentor report handle maintain
store cache log track monitor schedule postpone delay cancel book publish post share record
photograph film perform compete race hike bike cycle camp swim surf ski climb jog walk dance sing
garden plant knit sew crochet draw collect cover expect arrive return land stay spend care raise
promote hire fire interview lead present participate help assemble repair renovate decorate carve
clean injure sprain twist recover quit score wrap whip skype reconnect chat contribute accomplish
achieve remodel secure recommend fund pitch negotiate upload download automate document configure
provision rotate revoke restore backup benchmark optimise optimize debug reproduce escalate
resolve patch bump pin enable disable rollback nominate elect appoint reschedule reserve inherit
overhaul audit onboard rewire tune commission retrain announce approve reject review provide
serve sponsor call name base locate cost speak meditate exercise drive wear ride remember forget
rely depend run contain include follow
turn listen happen occur expire push shift swap trade ditch
exchange transition rotate convert smoke recruit redesign evaluate pilot archive appoint close
deliver go stay
""".replace("\n", " ").split()
_AUXILIARY_THIRD = {"am": "is", "are": "is", "have": "has", "do": "does", "were": "was"}


@dataclass(frozen=True)
class Form:
    """What a word is as a verb: its lemma and which form ("base", "s", "past", "part", "ing")."""

    lemma: str
    forms: frozenset[str]


def third_person(lemma: str) -> str:
    """The -s form: "go" becomes "goes"."""
    if lemma in _AUXILIARY_THIRD:
        return _AUXILIARY_THIRD[lemma]
    if lemma == "be":
        return "is"
    if lemma.endswith(("s", "x", "z", "ch", "sh", "o")):
        return lemma + ("zes" if lemma.endswith("z") else "es")
    if lemma.endswith("y") and lemma[-2] not in _VOWELS:
        return lemma[:-1] + "ies"
    return lemma + "s"


_DOUBLING = word_set(
    "prefer plan stop ship drop jog log quit enrol swim refer begin run get put set cut hit let"
    " split win shut knit skip chat swap"
)


def _past(lemma: str) -> str:
    if lemma.endswith("e"):
        return lemma + "d"
    if lemma.endswith("y") and lemma[-2] not in _VOWELS:
        return lemma[:-1] + "ied"
    return lemma + (lemma[-1] if lemma in _DOUBLING else "") + "ed"


def _gerund(lemma: str) -> str:
    if lemma.endswith("ie"):
        return lemma[:-2] + "ying"
    if lemma.endswith("e") and lemma not in ("be", "see"):
        return lemma[:-1] + "ing"
    return lemma + (lemma[-1] if lemma in _DOUBLING else "") + "ing"


def _table() -> dict[str, Form]:
    found: dict[str, tuple[str, set[str]]] = {}

    def note(word: str, lemma: str, form: str) -> None:
        found.setdefault(word, (lemma, set()))[1].add(form)

    irregular = [entry.split() for line in _IRREGULAR.split("\n") for entry in line.split("|")]
    past_of = {entry[0]: entry[1:] for entry in irregular if entry}
    for lemma, past, part in (e for e in irregular if e):
        note(past, lemma, "past")
        note(part, lemma, "part")
    for lemma in dict.fromkeys([*past_of, *_REGULAR]):
        note(lemma, lemma, "base")
        note(third_person(lemma), lemma, "s")
        note(_gerund(lemma), lemma, "ing")
        if lemma not in past_of or lemma == "learn":
            note(_past(lemma), lemma, "past")
            note(_past(lemma), lemma, "part")
    for word, form in (("am", "base"), ("are", "base"), ("is", "s"), ("were", "past")):
        note(word, "be", form)
    return {word: Form(lemma, frozenset(forms)) for word, (lemma, forms) in found.items()}


FORMS: dict[str, Form] = _table()
"""Every form of every known verb; no other word can be the verb of a statement."""
ADVERBS = word_set(
    "really also just still always never usually often currently recently finally already "
    "actually definitely totally absolutely mostly mainly now only even both generally "
    "normally typically officially originally simply sometimes frequently regularly rarely "
    "hardly ever probably personally truly deeply strongly much kinda sorta lately soon "
    "successfully eventually initially all sincerely especially happily proudly newly "
    "basically literally pretty so quite super very almost tentatively formally unanimously "
    "jointly ultimately hereby long since then once too long-term temporarily permanently "
    "completely fully slowly quickly primarily"
)
AUXILIARIES = word_set("am is are was were be been being have has had do does did will can would")
