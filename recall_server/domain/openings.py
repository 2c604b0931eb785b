"""Opening words that say that the rest is to be forgotten, or is a correction: a table for each
language that extraction reads.
"""

import re
from collections.abc import Mapping

_POLITE = r"(?:please|bitte|por\s+favor|s['’]il\s+(?:te|vous)\s+pla[iî]t)\s*,?\s+"
# The text after such an opening is to be forgotten.
_FORGET = {
    "en": (
        (
            r"(?:forget|unlearn|do(?:n['’]t|\s+not)\s+remember|stop\s+remembering)"
            r"(?:\s+(?:that|about)\b|\s*:)"
        ),
    ),
    "de": (
        r"(?:vergiss|vergesst|vergessen\s+sie)(?:\s+bitte)?\s*(?:,\s*dass\b|:)",
        r"merk(?:e|en\s+sie)?\s+dir\s+nicht(?:\s+mehr)?\s*(?:,\s*dass\b|:)",
    ),
    "es": (
        r"(?:olvida|olvide|olv[ií]date\s+de|olv[ií]dese\s+de|no\s+recuerdes)(?:\s+que\b|\s*:)",
        r"deja\s+de\s+recordar(?:\s+que\b|\s*:)",
    ),
    "fr": (r"(?:oublie|oubliez|ne\s+retiens\s+pas|ne\s+retenez\s+pas)(?:\s+qu(?:e\b|['’])|\s*:)",),
    # Without a "please" or a colon, 忘记 says what somebody forgot.
    "zh": (
        r"(?:请(?:忘记|忘掉)|(?:忘记|忘掉|忘了)[:：,，])",
        r"请?(?:别|不要|不要再)记住[:：,，]?",
    ),
    "ja": (r"(?:忘れて(?:ください)?|覚えないで(?:ください)?)[:：、]",),
}
# The text after such an opening is the correct statement.
_CORRECT = {
    "en": (
        r"(?:correction|i\s+was\s+wrong|that(?:['’]s|\s+(?:is|was))\s+wrong)\s*[:,.;–—-]+",
        r"(?:no|actually)\s*,",
    ),
    "de": (
        (
            r"(?:korrektur|berichtigung|richtigstellung|ich\s+habe\s+mich\s+geirrt"
            r"|das\s+(?:stimmt\s+nicht|ist\s+falsch|war\s+falsch))\s*[:,.;–—-]+"
        ),
        r"nein\s*,",
    ),
    "es": (
        (
            r"(?:correcci[oó]n|rectificaci[oó]n|me\s+equivoqu[eé]|me\s+he\s+equivocado"
            r"|eso\s+(?:no\s+es\s+correcto|es\s+falso|estaba\s+mal))\s*[:,.;–—-]+"
        ),
        r"(?:no|en\s+realidad)\s*,",
    ),
    "fr": (
        (
            r"(?:correction|rectification|je\s+me\s+suis\s+tromp[eé]e?|c['’](?:est|était)\s+faux)"
            r"\s*[:,.;–—-]+"
        ),
        r"(?:non|en\s+fait|en\s+réalité)\s*,",
    ),
    "zh": (r"(?:更正|纠正|我(?:说|弄|搞)错了)[:：,，。]", r"(?:不|不对|其实|实际上)[,，]"),
    "ja": (
        r"(?:訂正|修正|間違えました|間違いでした)[:：、。]",
        r"(?:いいえ|いや|実は|違います)[、,]",
    ),
}


def _compiled(table: Mapping[str, tuple[str, ...]]) -> re.Pattern[str]:
    known = "|".join(one for cues in table.values() for one in cues)
    return re.compile(rf"(?:{_POLITE})?(?:{known})\s*", re.IGNORECASE)


FORGET = _compiled(_FORGET)
CORRECT = _compiled(_CORRECT)
LANGUAGES = frozenset(_FORGET) & frozenset(_CORRECT)
