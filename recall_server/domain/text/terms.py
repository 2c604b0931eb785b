"""The terms by which texts and questions are indexed: pure, and the same on both engines.

Texts and questions go through the same function, so FTS syntax has no meaning here. Terms depend on
Python's Unicode tables and on PyStemmer: a change of either requires a re-index.

A kind of value that a question may ask for by its form, such as a phone number, is a term like a
speaker: "What is the doctor's phone number?" shares no word with "Dr. Falk, 01632 960 418".

The index has all words but the function words of English. Those of other languages are left out of
the question only, so a change of their lists needs no new index.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain, islice
from threading import Lock
from typing import NamedTuple

import Stemmer

TERM_CHARS_MAX = 64
"""Longer terms are cut, so that pasted blobs do not enlarge index rows."""

FOLDED_MAX = 4
FOLDED_FREE_CHARS = 1_000
"""A folded text may have so many times the characters of the text, and so many more. A ligature
folds to up to 18, and a search of 8,192 of them would hold up all others."""

TERMS_DISTINCT_MAX = 4_096
"""How many distinct terms of one text are kept, the first ones: it bounds its index rows."""

SPEAKER = "@"
"""The prefix of a term that names the speaker of an item."""

_CACHED_CHARS_MAX = 32

# Function words of English (after Snowball's list). "will", "may" and "us" are left out on purpose:
# in lower case they are also a name, a month and a country, which memories are about.
STOP = frozenset(
    """
    a an the and or but nor so than then if because as while until of at by for with about against
    between into through during before after above below to from up down in out on off over under
    again further once here there all any both each few more most other some such only own same
    too very just no not i me my mine myself we our ours ourselves you your yours yourself
    yourselves he him his himself she her hers herself it its itself they them their theirs
    themselves what which who whom whose this that these those when where why how am is are was
    were be been being have has had having do does did doing would should could can cannot
    i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd
    they'd i'll you'll he'll she'll it'll we'll they'll isn't aren't wasn't weren't hasn't haven't
    hadn't doesn't don't didn't won't wouldn't shan't shouldn't can't couldn't mustn't mightn't
    needn't ain't let's that's that'll who's what's here's there's when's where's why's how's
    im ive dont doesnt didnt isnt arent wasnt werent cant couldnt wouldnt shouldnt wont thats
    """.split()  # noqa: SIM905 - a list of words reads best as words
)

# Scripts that are not, or not only, written with spaces between words.
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece"  # Lao
    "\u1000-\u103f\u1050-\u108f"  # Myanmar
    "\u1100-\u11ff\uac00-\ud7ff"  # Hangul
    "\u1780-\u17d3"  # Khmer
    "\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"  # kana, Bopomofo, Han
)


@cache
def _marks() -> str:
    """Return every combining mark of planes 0 and 1, as the ranges of a character class.

    Python's word class has no marks, which would split words of Indic scripts.
    """
    marks = [unicodedata.category(chr(c)).startswith("M") for c in range(0x20000)]
    edges = [c for c in range(1, 0x20000) if marks[c] != marks[c - 1]]
    return "".join(f"{chr(a)}-{chr(b - 1)}" for a, b in zip(edges[::2], edges[1::2], strict=True))


_CONNECTOR = r"(?:[._@+&:'-]|,(?<=\d,)(?=\d{3}(?!\d)))"
_SUFFIX = r"(?:\+\+?|[#%])?"


def _pattern_of(word: str, other: str = "") -> re.Pattern[str]:
    """Match words joined by single connectors, with the suffix of `c++`, `c#` or `50%`; or `other`.

    Possessive throughout, so that matching is linear whatever the text.
    """
    return re.compile(f"{word}(?:{_CONNECTOR}{word})*+{_SUFFIX}{other}")


_PLAIN = _pattern_of("[A-Za-z0-9]++")
_RUN = re.compile(f"[{_UNSPACED}]")
# One of these is often a word: "猫" is part of "橘猫".
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_SPLIT = re.compile(r"[._@+&:',#%-]+")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)")
_CONTRACTED = re.compile(r"'(?:s|t|re|ve|ll|d|m)(?![a-z0-9'])")
_ACCENTS = re.compile("([a-z])[\u0300-\u036f]+")
# Soft hyphens, joiners and variation selectors do not change a word.
_INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]+")
_PILE_POSSIBLE = re.compile("[^\x00-\u02ff]{31}")  # ten times as fast to rule a pile out
_TYPOGRAPHY = (("\u2018", "'"), ("\u2019", "'"), ("\u02bc", "'"), ("\u2010", "-"))

# Forms that the stemmer does not join, each line of a list with its first: of verbs and nouns that
# are no other common word or name, spellings, and the short names of months and days.
_FORMS = """
    become became, begin began begun, bite bit bitten, blow blew blown, break broke broken,
    bring brought, build built, burn burnt, buy bought, catch caught, choose chose chosen,
    come came, draw drawn, dream dreamt, drink drank drunk, drive drove driven, eat ate eaten,
    fall fell fallen, feel felt, fight fought, find found, fly flew flown, forget forgot forgotten,
    freeze froze frozen, get got gotten, give gave given, go went gone, grow grew grown, hang hung,
    hear heard, hide hid hidden, hold held, keep kept, know knew known, learn learnt, lend lent,
    lose lost, make made, mean meant, meet met, pay paid, ride rode ridden, ring rang rung, run ran,
    say said, see saw seen, sell sold, send sent, shake shook shaken, sing sang sung, sink sank
    sunk, sit sat, sleep slept, speak spoke spoken, spend spent, stand stood, steal stole stolen,
    stick stuck, strike struck, swear swore sworn, sweep swept, swim swam swum, take took taken,
    teach taught, tear tore torn, tell told, throw threw thrown, understand understood, wake woke
    woken, wear wore worn, win won, write wrote written, child children, foot feet, knife knives,
    man men, mouse mice, shelf shelves, tooth teeth, wife wives, woman women, center centre,
    color colour, favorite favourite, gray grey, jewelry jewellery, license licence,
    neighbor neighbour, program programme, theater theatre, january jan, february feb, april apr,
    august aug, september sep sept, october oct, november nov, december dec, tuesday tue tues,
    thursday thu thur thurs, friday fri
"""
_ENGLISH = Stemmer.Stemmer("english", 0)
# The stem of the first of each line, by the stems of the other forms.
_FIRST = {
    form: first
    for first, *forms in (_ENGLISH.stemWords(line.split()) for line in _FORMS.split(","))
    for form in forms
}
_ENGLISH_LOCK = Lock()  # one Stemmer must not be in two threads at once


def load() -> None:
    """Build what texts beyond ASCII need, which takes 30 ms; commands that index nothing do not."""
    _world()
    _pile()


@cache
def _world() -> re.Pattern[str]:
    """Return the pattern of tokens for a text that is not all ASCII."""
    return _pattern_of(rf"(?:[^\W_{_UNSPACED}]++[{_marks()}]*+)++", rf"|[{_UNSPACED}]++")


@cache
def _pile() -> re.Pattern[str]:
    """Return the pattern of long runs of combining marks.

    Normalizing sorts such a run by insertion: 16,000 pairs took 0.8 s. UAX #15 (D4) allows 30.
    """
    return re.compile(f"[{_marks()}]{{31,}}")


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order and with repetitions; never raises, linear in the text.

    NFKC and casefold, Latin accents off (as FTS5 does); a word gives its English Snowball stem; a
    joined token (`node.js`, `user@example.com`, `v2.1`, `c++`, `50%`, `o'brien`) gives itself and
    its parts; scripts without spaces give character bigrams. Stop words are dropped unless the text
    has nothing else. Terms have 1 to 64 characters, no NUL and no surrogates.
    """
    text = folded(text)[: FOLDED_MAX * len(text) + FOLDED_FREE_CHARS]
    tokens = tokens_of(text)
    # A cache keyed by pasted blobs would hold megabytes; words are short and repeat.
    short = len(max(tokens, key=len, default="")) <= _CACHED_CHARS_MAX
    found = list(chain.from_iterable(map(_expand_cached if short else _of_token, tokens)))
    return found or list(chain.from_iterable(_expand(token, stops=frozenset()) for token in tokens))


def speaker_terms(label: str | None) -> list[str]:
    """Return the terms of a speaker's label, one for each word. Their prefix differs from every
    term of a text.
    """
    words = tokens_of(folded(label)) if label else []
    return list(dict.fromkeys(f"{SPEAKER}{word}"[:TERM_CHARS_MAX] for word in words))


def tokens_of(text: str) -> list[str]:
    """Return the words of a text as written, joined ones whole."""
    return (_PLAIN if text.isascii() else _world()).findall(text)


def written(text: str) -> Iterator[re.Match[str]]:
    """Yield the words of a text as written, joined ones whole, with their positions."""
    return (_PLAIN if text.isascii() else _world()).finditer(text)


def folded(text: str) -> str:
    """Normalize a text as the index does before stemming: NFKC, casefold, Latin accents off."""
    return text.lower() if text.isascii() else _normal(text)


def unspaced(text: str) -> bool:
    """True if a text has characters of a script that is written without spaces."""
    return _RUN.search(text) is not None


def term_counts(text: str) -> tuple[dict[str, int], int]:
    """Return how often each term occurs (tf), and the length of the text in terms.

    At most `TERMS_DISTINCT_MAX` distinct terms, the first ones of the text; the length counts all,
    as BM25 normalizes by it.
    """
    found = terms(text)
    return dict(islice(Counter(found).items(), TERMS_DISTINCT_MAX)), len(found)


def _normal(text: str) -> str:
    """Apply NFKC and casefold; fold Latin accents, invisible characters and typographic marks."""
    for typographic, plain in _TYPOGRAPHY:
        text = text.replace(typographic, plain)
    text = _INVISIBLE.sub("", text)
    if _PILE_POSSIBLE.search(text):
        text = _pile().sub(lambda pile: pile[0][:30], text)
    text = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFKC", _ACCENTS.sub(r"\1", text))


def _of_token(token: str) -> tuple[str, ...]:
    return _expand_cached(token) if len(token) <= _CACHED_CHARS_MAX else _expand(token)


def _expand(token: str, stops: frozenset[str] = STOP) -> tuple[str, ...]:
    """Return the terms of one token: the whole if it is more than a word, then its parts."""
    if token in stops:
        return ()
    if _RUN.match(token):
        pairs = [token[i : i + 2] for i in range(max(1, len(token) - 1))]
        return (*pairs, *(_HAN.findall(token) if len(token) > 1 else ()))
    if token.isalnum():
        return (_stem(token),)
    if "'" in token:
        token = _CONTRACTED.sub("", token)
    if "," in token and _GROUPED.match(token):
        token = token.replace(",", "")  # 1,200 is 1200
    parts = [part for part in _SPLIT.split(token) if part]
    kept = tuple(_stem(part) for part in parts if part not in stops)
    if len(parts) == 1 and parts[0] == token:
        return kept
    # O'Brien is also written OBrien; every other connector is significant and stays.
    return (token.replace("'", "")[:TERM_CHARS_MAX], *kept)


_expand_cached = lru_cache(maxsize=32_768)(_expand)


def _stem(word: str) -> str:
    word = word[:TERM_CHARS_MAX]
    if not (word.isascii() and word.isalpha()):
        return word
    with _ENGLISH_LOCK:
        stem = _ENGLISH.stemWord(word)
    first: str = _FIRST.get(stem, stem)
    return first


VALUE = "="
"""The prefix of a term that names a kind of value. It differs from every term of a text."""


class _Kind(NamedTuple):
    """How one asks for a kind of value, and how it is written."""

    asked: re.Pattern[str]
    written: re.Pattern[str]


def _kind(asked: str, written: str) -> _Kind:
    return _Kind(re.compile(asked, re.IGNORECASE), re.compile(written, re.IGNORECASE))


_MONTH = (
    r"(?:jan(?:uary|uar|vier|eiro)?|jän(?:ner)?|ene(?:ro)?|gennaio|feb(?:ruary|ruar|rero|braio)?"
    r"|f[eé]v(?:rier|ereiro)?|mar(?:ch|s|zo|ço)?|märz|apr(?:il|ile)?|avr(?:il)?|abr(?:il)?|may|mayo"
    r"|mai|maio|maggio|june?|juni|junio|juin|junho|giugno|july?|juli|julio|juil(?:let)?|julho|luglio"
    r"|aug(?:ust)?|ago(?:sto)?|ao[ûu]t|sept?(?:ember|iembre|embre)?|set(?:embro|tembre)?"
    r"|o[ck]t(?:ober|ubre|obre)?|out(?:ubro)|ott(?:obre)|nov(?:ember|iembre|embre|embro)?"
    r"|de[cz](?:ember|embro)?|dic(?:iembre|embre)?|d[ée]c(?:embre)?)\b"
)
_KINDS = {
    "phone": _kind(
        r"\b(?:tele)?phone\b|\b(?:mobile|cell) number\b|\bnumber\b[^.?]{0,30}\b(?:call|dial|ring)\b"
        r"|\b(?:call|dial|ring)\b[^.?]{0,30}\bnumber\b|\btelefon|handynummer|rufnummer"
        r"|\bnummer v[oe][mn]\b|\btel[ée]fono\b|\bm[óo]vil\b|t[ée]l[ée]phone|電話|电话|手机号",
        r"(?<![\w.,:/-])(?!\d{4}-\d\d-\d\d|\d{4}-\d{4}(?!\d)|\d\d?/\d\d?/\d{2,4}(?!\d)"
        r"|\d{1,3}(?:[ ]\d{3})+(?![ ]?\d))"
        r"\+?\(?\d(?:[ ()/-]{0,2}\d){6,14}(?![\w.,]*\d)",
    ),
    "mail": _kind(
        r"\be-?mails?\b|mailadresse|\bcorreo\b|\bcourriel\b|\badresse mail\b|メール|邮箱|邮件",
        r"[\w.+-]@[\w-]+\.\w",
    ),
    "money": _kind(
        r"\bhow much (?:is|are|was|were|did|does|do|will|would|may|can|should)\b|\bpay\b|\bpaid\b"
        r"|\b(?:costs?|prices?|fees?|rent|budgets?|salary|expensive|deposit)\b"
        r"|kostet\b|\bkosten\b|\bpreis|\bwie teuer\b|bezahl|\bmiete\b|\bgehalt\b"
        r"|\bcu[áa]nto (?:cuesta|vale|pag)|\bcuestan?\b|\bprecio|\balquiler\b"
        r"|\bpresupuesto\b|\bco[ûu]t(?:e|ent|er|s)?\b|\bprix\b|\bloyer\b"
        r"|いくら|価格|値段|料金|予算|多少钱|价格|房租|预算",
        r"[€$£¥]\s?\d|\d\s?(?:[€$£¥円元块]|(?:euros?|eur|usd|dollars?|pounds?|gbp|chf|francs?|franken"
        r"|pesos?|yen)\b)",
    ),
    "day": _kind(
        # "When" within a sentence rarely asks.
        r"^\W*(?:\w+[ ,]+)?(?:when|cu[áa]ndo|quand|quando)\b|\bwann\b|\bwelche[mnr]? tag\b"
        r"|\b(?:what|which) (?:date|day)\b|\bqu[ée] d[íi]a\b|\bquel jour\b|\bche giorno\b"
        r"|何日|哪天",
        # The lookaheads are tried first: all months at each word take four times as long.
        rf"(?=\d)(?:\b\d{{1,2}}(?:\.|st|nd|rd|th|er)?\s{{1,3}}(?:(?:of|de|di)\s{{1,3}})?{_MONTH}"
        r"|\b\d{4}-\d\d-\d\d\b|\b\d{1,2}(?:\.\d{1,2}\.|/\d{1,2}/)(?:\d\d){0,2}(?![\d.])|\d[日号])"
        rf"|\b(?=[^\W\d_]{{3,10}}\.?\s{{1,3}}\d\d?\b){_MONTH}",
    ),
    "clock": _kind(
        r"\bwhat time\b|\bwie viel uhr\b|\bwieviel uhr\b|\b[àa] quelle heure\b|\ba qu[ée] hora\b"
        r"|何時|几点",
        r"(?<![\d:.])[0-2]?\d[:.][0-5]\d(?![\d:.]|\s?[€$£%])|\b\d\d?\s?(?:[ap]\.?m\b|uhr\b|h\b)|[時时点]",
    ),
}


def asked_values(question: str) -> frozenset[str]:
    """Return the terms of the kinds of value that a question asks for."""
    return frozenset(
        f"{VALUE}{name}" for name, kind in _KINDS.items() if kind.asked.search(question)
    )


def value_terms(text: str) -> list[str]:
    """Return the terms of the kinds of value that a text has."""
    return [f"{VALUE}{name}" for name, kind in _KINDS.items() if kind.written.search(text)]


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
    "it": """
        a ai al alla alle allo anche c che chi ci com come con cosa cos d da dai dal dalla
        dalle de degli dei del dell della delle dello di dove e è era erano essere fa fatto fra gli
        ha hai hanno ho i il in io l la le lei lo loro lui ma mi mia mie miei mio ne negli nei nel
        nell nella nelle nello noi non nostra nostre nostri nostro o per perché però più puoi può
        quale quali qualche quando quanta quante quanti quanto quel quella quelle quelli quello
        questa queste questi questo s se sei si siamo sono sta stato su sua sue sugli sui sul sulla
        sulle suo suoi te ti tra tu tua tuo un una uno v vi voi
    """,
    "pt": """
        a ao aos as à às até com como cadê da das de dela dele deles do dos e é ela elas ele eles em
        era eram essa esse esta está estão estas este estes eu foi foram ha há isso isto já la lhe
        mais mas me meu meus minha minhas muito na nas não nem no nos nós nossa nosso num numa o
        onde os ou para pela pelas pelo pelos por porque pra qual quais quando quanta quantas quanto
        quantos que quê quem se sem ser será seu seus só sua suas são também te tem têm tenho ter
        tinha tu tua um uma umas uns vai vão você vocês vou
    """,
}
# Endings of words, without those that make another word: "Feier" is also asked for as "feiern". The
# index has stems of English words only.
_ENDINGS = {
    "de": "e en em er es n s st t te ten et ung ungen",
    "es": "a o as os e es s ar er ir ando ado ada ados adas",
    "fr": "e s es er ez ent ee ees ie ique iques ion ions ant ons",
    "it": "a e i o are ere ire ato ata ati ate ando endo",
    "pt": "a o as os e es s ar er ir ou ado ada ados adas ando",
}
_ENDED_MIN = 4
# Pairs of characters that ask, in Chinese and Japanese; and characters of which a pair says little:
# particles, endings and what asks.
_ASKING = frozenset(
    "多少 怎么 几点 谁那 时候 何曜 何時 何台 何人".split()  # noqa: SIM905
)
_PARTICLES = re.compile(r"[的了吗呢是么什哪のはをがにでとも]|[ぁ-ゖー]{2}")
# In French and Italian: "l'eau" is asked for as "eau": the text may have "d'eau".
_ELIDED = re.compile(
    r"\b(?:[cdjlmnstv]|qu|un|(?:a|da|de|ne|su|que)l?l|quest)['’](?=\w)", re.IGNORECASE
)
_ELIDING = ("fr", "it")


def asked_terms(text: str, language: str) -> list[str]:
    """Return the distinct terms of a question in a language of `language_of`, in their order,
    without function words. If it has nothing else, all are returned.
    """
    if language in _ELIDING:
        text = _ELIDED.sub("", text)
    asked = list(dict.fromkeys(terms(text)))
    dropped = _ASKING | _function_terms(language)
    return [term for term in asked if not (term in dropped or _PARTICLES.search(term))] or asked


def other_forms(text: str, language: str) -> dict[str, frozenset[str]]:
    """Return, for the terms of a question in German, Spanish or French, the terms of other forms of
    the same word.
    """
    endings = sorted(_ENDINGS.get(language, "").split(), key=len, reverse=True)
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
    words = tokens_of(folded(apart))
    languages = _languages_of_words()
    counts = Counter(chain.from_iterable(languages[word] for word in words if word in languages))
    if not counts:
        return ""
    # Of languages with as many words, the first of the list.
    name = max(_FUNCTION_WORDS, key=counts.__getitem__)
    least = max(_WORDS_MIN, 1 + sum(map(STOP.__contains__, words)))
    return name if counts[name] >= least else ""


def content_words(text: str, language: str | None = None) -> str:
    """Return a text in a language of `language_of`, if it is known or found, without its function
    words and punctuation, if it has other words; any other text unchanged.
    """
    language = language_of(text) if language is None else language
    if not language:
        return text
    dropped = _folded_words()[language]
    words = tokens_of(_ELIDED.sub("", text))
    return " ".join(word for word in words if folded(word) not in dropped) or text


@cache
def _function_terms(language: str) -> frozenset[str]:
    words = _FUNCTION_WORDS.get(language, "").split()
    return frozenset(term for word in words for term in terms(word))


@cache
def _folded_words() -> dict[str, frozenset[str]]:
    return {name: frozenset(folded(words).split()) for name, words in _FUNCTION_WORDS.items()}


@cache
def _languages_of_words() -> dict[str, list[str]]:
    """Return the languages that have a function word, by the word."""
    found: dict[str, list[str]] = {}
    for name, words in _folded_words().items():
        for word in words:
            found.setdefault(word, []).append(name)
    return found
