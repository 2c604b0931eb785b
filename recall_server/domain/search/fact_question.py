"""Questions for one fact: "Where do I live?" asks for the attribute `lives_in` of the user. Pure.

The answer need not have any of their words: "I moved to Bristol".
"""

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.text.terms import terms

QUESTION_CHARS_MAX = 120


class FactQuestion(NamedTuple):
    """A question for one fact: its subject, as a fact names it, and the attributes that answer it.
    `timed`: it may name a time.
    """

    subject: str
    attributes: tuple[str, ...]
    timed: bool = False


# Questions, one a line, by the attributes that answer them. {who} is the subject, {whose} the same
# in the genitive.
_QUESTIONS = {
    "lives_in moved_to": r"""
        where (?:do|does|did) {who} live
        where (?:is|am|are|was|were) {who} (?:living|based)
        (?:which|what) (?:city|town|country) (?:do|does|did) {who} live(?: in)?
        where (?:has|have|did) {who} moved?(?: to)?
        wo (?:wohnen?|wohnt|leben?|lebt) {who}
        wohin (?:bin|ist) {who} gezogen
        d[óo]nde (?:vivo|vive {who})
        o[ùu] (?:est-ce que )?(?:j'habite|habite {who}|vit {who})
        o[ùu] est-ce que {who} (?:habite|vit)
        {who}(?:现在)?住在?(?:哪里|哪儿|哪)
        {who}[はが](?:今)?どこに住んで(?:いますか|いるの|いる)
    """,
    "works_at works_in": r"""
        where (?:do|does|did) {who} work
        (?:who|(?:what|which) company) (?:do|does|did) {who} work (?:for|at)
        (?:who|what) is {whose} (?:employer|company)
        (?:wo|bei wem|für wen) (?:arbeiten?|arbeitet) {who}
        d[óo]nde (?:trabajo|trabaja {who})
        o[ùu] (?:est-ce que )?(?:je travaille|travaille {who})
        o[ùu] est-ce que {who} travaille
        {who}(?:现在)?在(?:哪里|哪儿|哪家公司)(?:工作|上班)
        {who}[はが](?:今)?どこで働いて(?:いますか|いるの|いる)
    """,
    "job_title works_at": r"""
        what (?:do|does) {who} do(?: for (?:a living|work))?
        what is {whose} (?:job|job title|profession|occupation)
        was (?:bin|ist) {who} von beruf
        was (?:mache|macht) {who} beruflich
        a qu[ée] (?:me dedico|se dedica {who})
        {who}(?:现在)?(?:做什么工作|的职业是什么)
        {who}の(?:仕事|職業)は何(?:ですか)?
        (?:{who}は)?何の仕事をして(?:いますか|いるの|いる)
    """,
    "age birthday": r"""
        how old (?:is|am|are) {who}
        wie alt (?:bin|ist) {who}
        cu[áa]ntos años (?:tengo|tiene {who})
        quel âge (?:ai-je|a {who})
        {who}(?:今年)?(?:几岁|多大)
        {who}[はが]何歳(?:ですか)?
    """,
    "birthday": r"""
        when (?:is|was) {whose} birthday
        when (?:was|were) {who} born
        wann (?:hat|habe) {who} geburtstag
        cu[áa]ndo (?:cumplo|cumple {who}|nac[ií]|nació {who})
        {who}的?生日是?(?:哪天|什么时候|几月几[日号])
        {who}の誕生日は(?:いつ(?:ですか)?)?
    """,
    "partner": r"""
        who is {whose} (?:wife|husband|partner|girlfriend|boyfriend)
        what is {whose} (?:wife|husband|partner|girlfriend|boyfriend)'s name
        who is {who} married to
        wie heißt (?:meine? (?:frau|mann|partner(?:in)?|freund(?:in)?))
    """,
    "phone": r"""
        what is {whose} (?:phone |mobile |cell )?number
    """,
    "email": r"""
        what is {whose} e-?mail(?: address)?
    """,
    "address": r"""
        what is {whose} address
    """,
    "diet": r"""
        (?:is|am|are) {who} (?:a )?(?:vegetarian|vegan)
    """,
    "name": r"""
        what is {whose} name
        who am i
        wie heiße ich
        c[óo]mo me llamo
        comment je m'appelle
        {who}叫什么(?:名字)?
        {who}の名前は(?:何(?:ですか)?)?
    """,
    "from": r"""
        where (?:is|am|are) {who} from
        where (?:do|does) {who} come from
    """,
    "allergic_to diet eats": r"""
        what (?:is|am|are) {who} allergic to
        what are {whose} allergies
        (?:do|does) {who} have any allergies
        what allergies (?:do|does) {who} have
        what (?:do|does|can|should)(?: not|n't)? {who} (?:not )?eat
        (?:wogegen|worauf|gegen was) (?:bin|ist) {who} allergisch
        a qu[ée] (?:soy|es {who}) alérgic[oa]
        {who}对什么过敏
        {who}は何のアレルギーがありますか
    """,
    "has_child": r"""
        how many (?:children|kids) (?:do|does) {who} have
        (?:do|does) {who} have (?:any )?(?:children|kids)
        wie viele kinder (?:habe|hat) {who}
    """,
    "has_pet": r"""
        (?:do|does) {who} have (?:any |a )?pets?
        what pets? (?:do|does) {who} have
    """,
    "speaks native_language": r"""
        (?:what|which) languages? (?:do|does|can) {who} speak
    """,
}
_NAME = r"([^?？,;:!\n]{1,40}?)"
_HOLES = {"{who}": _NAME, "{whose}": rf"(?:(my)|{_NAME}(?:'s|(?<=s)'))"}
_BEFORE = r"\W*(?:(?:and|so|hey|und|y|et),? )?"
_NOW = r"(?: (?:now|currently|today|these days|at the moment|jetzt|heute|ahora|maintenant))?"
_WHEN = r"(?: (?:back )?(?:(?:in|on|during|around|at|en|im|am) |last ).{2,40})?"
_SELF = re.compile(r"i|me|my|ich|yo|je|我|私|僕|俺|わたし", re.IGNORECASE)
_OWN = re.compile(r"my (?=\w)", re.IGNORECASE)
# Whom these words stand for is not known.
_UNKNOWN = re.compile(
    r"you|your|we|our|they|their|he|his|she|her|it|its|one|this|that", re.IGNORECASE
)


def load() -> None:
    """Compile the questions, which takes 30 ms."""
    _patterns()


@cache
def _patterns() -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
    found = []
    for attributes, questions in _QUESTIONS.items():
        lines = "|".join(line.strip() for line in questions.strip().splitlines())
        for hole, pattern in _HOLES.items():
            lines = lines.replace(hole, pattern)
        whole = rf"{_BEFORE}(?:{lines}){_NOW}({_WHEN})\W*"
        found.append((tuple(attributes.split()), re.compile(whole, re.IGNORECASE)))
    return tuple(found)


def fact_question(question: str) -> FactQuestion | None:
    """Return what a question asks for, if it asks for one fact and for nothing else."""
    if len(question) > QUESTION_CHARS_MAX:
        return None
    question = question.replace("’", "'").replace("what's", "what is").replace("What's", "what is")
    for attributes, pattern in _patterns():
        if match := pattern.fullmatch(question):
            *names, when = match.groups()
            subject = next(filter(None, names), "i").strip()
            if _UNKNOWN.fullmatch(subject.split()[0]):
                return None
            if _SELF.fullmatch(subject):
                subject = "user"
            return FactQuestion(_OWN.sub("user's ", subject), attributes, bool(when.strip()))
    return None


class Stated(NamedTuple):
    """Which items of a pool state a fact that a question asks for: the attribute of those that
    state one of its subject, else ""; and those that state one of another subject. `called`: the
    terms by which the question names its subject.
    """

    attributes: NDArray[np.str_]
    of_others: NDArray[np.bool_]
    called: frozenset[str] = frozenset()


def stated(
    question: FactQuestion, names: Collection[str], facts: Sequence[tuple[str, str]]
) -> Stated:
    """Compare the facts of items, each as the normal names of its subject and attribute, with what
    is asked of a subject with these normal names. "Nora" is also a "Nora Keller", if there is one.
    """
    asked = {who for who, attribute in facts if attribute in question.attributes}
    called = frozenset(terms(question.subject)) - {"user"}
    alike = {who for who in asked - set(names) if called & {*terms(who)}}
    longer = [who for who in alike if called < {*terms(who)}]
    own = set(names)
    if called and len(longer) == 1 and asked.isdisjoint(names):
        own = set(longer)
    others = asked - own - alike - {"team"}
    stating = [(who, one if one in question.attributes else "") for who, one in facts]
    return Stated(
        np.array([one if who in own else "" for who, one in stating], np.str_),
        np.array([bool(one) and who in others for who, one in stating], np.bool_),
        called,
    )
