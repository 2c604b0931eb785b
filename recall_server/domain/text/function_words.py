"""The terms that a question asks for, without the function words of its language, and the other
forms of its words.

The index has all words but the function words of English. Those of other languages are left out of
the question only, so a change of these lists needs no new index.
"""

from __future__ import annotations

import re
from functools import cache

from recall_server.domain.text.terms import STOP, folded, terms, written

# One such word may be a name or a word of another language.
_WORDS_MIN = 2
_FUNCTION_WORDS = {
    "de": """
        ab aber alle als also am an auch auf aus bei beim bin bis bist bitte da damit dann das
        dass dein deine dem den denn der des die dich dir doch dort du ein eine einem einen
        einer eines er es für gibt haben habe hat hatte hier ich ihm ihn ihr ihre im in ist ja
        jetzt kann kein keine keinen könnte mein meine meinem meinen meiner mich mir mit muss
        nach nicht noch nun nur ob oder seit sein seine sich sie sind so soll sollte über um und
        uns unser unsere unserem unseren unserer unter viel viele vom von vor wann war waren
        warum was welche welchem welchen welcher welches wem wen wenn wer werden wessen wie
        wieder wieviel wir wird wo wofür woher wohin womit worden wurde zu zum zur
    """,
    "es": """
        a al algo ante como con cual cuales cuando cuanta cuantas cuanto cuantos de del desde
        donde el ella ellas ellos en era eran es esa ese eso esta estan estar estas este esto
        estoy fue fui ha han has hasta hay he la las le les lo los me mi mis mia mio muy ni no
        nos nosotros nuestra nuestras nuestro nuestros o para pero por porque que quien quienes
        se ser si sin sobre son soy su sus tambien te tengo tiene tienen tu tus un una unas uno
        unos y ya yo
    """,
    "fr": """
        a à ai as au aux avec avons avez c ce ces cet cette chez combien comment d dans de des
        doit du elle elles en est est-ce et ete etait faut il ils j je l la le les leur leurs
        lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas peut pour pourquoi
        qu quand que quel quelle quelles quels qui quoi s sa se ses si son sont sur t ta te tes
        toi ton tu un une va vers vos votre vous y
    """,
}
# Endings of words, without those that make another word: "Feier" is also asked for as "feiern". The
# index has stems of English words only.
_ENDINGS = {
    "de": "e en em er es n s st t te ten et ung ungen",
    "es": "a o as os e es s ar er ir ando ado ada ados adas",
    "fr": "e s es er ez ent ee ees ie ique iques ion ions ant ons",
}
_ENDED_MIN = 4
# Pairs of characters that ask, in Chinese and Japanese; and characters of which a pair says little:
# particles, endings and what asks.
_ASKING = frozenset(
    "多少 怎么 几点 谁那 时候 何曜 何時 何台 何人".split()  # noqa: SIM905
)
_PARTICLES = re.compile(r"[的了吗呢是么什哪のはをがにでとも]|[ぁ-ゖー]{2}")
# In French, "l'eau" is asked for as "eau": the text may have "d'eau".
_ELIDED = re.compile(r"\b(?:[cdjlmnst]|qu)['’](?=\w)", re.IGNORECASE)


def asked_terms(text: str) -> list[str]:
    """Return the distinct terms of a question, in their order, without function words. If it has
    nothing else, all are returned.
    """
    language = language_of(text)
    if language == "fr":
        text = _ELIDED.sub("", text)
    asked = list(dict.fromkeys(terms(text)))
    dropped = _ASKING | _function_terms(language)
    return [term for term in asked if not (term in dropped or _PARTICLES.search(term))] or asked


def other_forms(text: str) -> dict[str, frozenset[str]]:
    """Return, for the terms of a question in German, Spanish or French, the terms of other forms of
    the same word.
    """
    endings = sorted(_ENDINGS.get(language_of(text), "").split(), key=len, reverse=True)
    found: dict[str, frozenset[str]] = {}
    for word in written(_ELIDED.sub("", text)) if endings else ():
        ended = folded(word[0])
        if not ended.isalpha() or len(ended) < _ENDED_MIN:
            continue
        cut = next((end for end in endings if ended.endswith(end)), "")
        stems = {stem for stem in (ended, ended.removesuffix(cut)) if len(stem) >= _ENDED_MIN}
        forms = {stem + ending for stem in stems for ending in ("", *endings)}
        for term in terms(ended):
            found[term] = frozenset(terms(" ".join(forms))) - {term}
    return found


def language_of(text: str) -> str:
    """Return the language of which the text has most function words; "" if that is English, or if
    there are few.
    """
    apart = _ELIDED.sub(lambda elided: f"{elided[0][:-1]} ", text)
    words = [folded(word[0]) for word in written(apart)]
    most, name = max(_WORDS_MIN, 1 + sum(map(STOP.__contains__, words))), ""
    for language, known in _folded_words().items():
        count = sum(map(known.__contains__, words))
        if count >= most:
            most, name = count + 1, language
    return name


@cache
def _function_terms(language: str) -> frozenset[str]:
    words = _FUNCTION_WORDS.get(language, "").split()
    return frozenset(term for word in words for term in terms(word))


@cache
def _folded_words() -> dict[str, frozenset[str]]:
    return {name: frozenset(folded(words).split()) for name, words in _FUNCTION_WORDS.items()}
