"""Values of attackers and faulty clients: texts, shapes, numbers, bodies and search syntax."""

# Every place for a caller's text, with the other arguments of the call.
TEXTS = {
    "store_memory": [
        '{"text": %s}',
        '{"text": "x", "topic": %s}',
        '{"text": "x", "session_id": %s}',
        '{"text": "x", "agent_id": %s}',
        '{"text": "x", "idempotency_key": %s}',
    ],
    "search_memories": ['{"query": %s}'],
    "inspect_memories": ['{"topic": %s}', '{"memory_id": %s}'],
    "delete_memory": ['{"memory_id": %s}'],
}

INVALID, MISSING = "INVALID_ARGUMENT", "MEMORY_NOT_FOUND"
REFUSED_TEXTS = [
    ("store_memory", {"text": ""}, "EMPTY_TEXT"),
    ("store_memory", {"text": " \n\t\u3000"}, "EMPTY_TEXT"),
    ("store_memory", {"text": "canary " * 40_000}, "TEXT_TOO_LONG"),
    ("store_memory", {"text": "x", "topic": "canary" * 22}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary\nforged"}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary\x1b[2J"}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary\u202e"}, INVALID),
    ("store_memory", {"text": "x", "idempotency_key": " "}, INVALID),
    ("store_memory", {"text": "x", "idempotency_key": "canary" * 43}, INVALID),
    ("store_memory", {"text": "x", "session_id": "canary" * 43}, INVALID),
    ("store_memory", {"text": "x", "agent_id": "can\rary"}, INVALID),
    ("search_memories", {"query": ""}, "EMPTY_TEXT"),
    ("search_memories", {"query": " \n"}, "EMPTY_TEXT"),
    ("search_memories", {"query": "canary " * 1_200}, "TEXT_TOO_LONG"),
    ("delete_memory", {"memory_id": ""}, MISSING),
    ("delete_memory", {"memory_id": "canary" * 10_000}, MISSING),
    ("delete_memory", {"memory_id": "mem_canary' OR '1'='1"}, MISSING),
    ("inspect_memories", {"memory_id": "mem_canary"}, MISSING),
    ("inspect_memories", {"type": "canary"}, INVALID),
    ("search_memories", {"query": "x", "mode": "canary; DROP TABLE memories"}, INVALID),
]
REFUSED_SHAPES = [
    ("store_memory", "{}"),
    ("store_memory", '{"text": null}'),
    ("store_memory", '{"text": 5}'),
    ("store_memory", '{"text": ["canary"]}'),
    ("store_memory", '{"text": "x", "unheard_of": "canary"}'),
    ("store_memory", '{"text": "x", "canary forged\\n": 1}'),
    ("store_memory", '{"text": "x", "namespace": "canary"}'),
    ("search_memories", '{"query": "x", "order by canary": 1}'),
    ("search_memories", '{"query": {"canary": 1}}'),
    ("search_memories", '{"query": "x", "explain": 1}'),
    ("search_memories", '{"query": "x", "explain": "true"}'),
    ("delete_memory", '{"memory_id": {"$ne": "canary"}}'),
    ("get_memory_stats", '{"<canary>": 1}'),
    ("get_memory_stats", '{"' + "canary" * 1_000 + '": 1}'),
]
NOT_INTEGERS = ('"5"', "5.5", "true", "[5]", "1e400", "-1e400", "1e300")
TOO_LOW, TOO_HIGH = ("-1", str(-(2**63)), "-1" + "0" * 400), (str(2**63), "1" + "0" * 400)
REFUSED_NUMBERS = [
    *(("search_memories", "limit", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH, "0", "51")),
    *(("inspect_memories", "limit", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH, "0", "51")),
    *(("inspect_memories", "offset", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH)),
    *(("search_memories", "max_tokens", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH)),
    *(("search_memories", w, n) for w in ("recency_weight", "mmr_lambda", "score_threshold")
      for n in ("-0.1", "1.1", '"0.5"', "true", "1e400", "-1e400", str(2**53 + 1))),
]  # fmt: skip
TAKEN_NUMBERS = [
    *(("search_memories", "limit", n) for n in ("1", "50", "5.0", "1e1", "null", '""')),
    *(("inspect_memories", "offset", str(n)) for n in (0, 2**53 + 1, 2**63 - 1, "1e2")),
    *(("search_memories", "max_tokens", str(n)) for n in (0, 1, 2**53 + 1, 2**63 - 1)),
    *(("search_memories", "score_threshold", n) for n in ("0", "-0.0", "1", "1e-400", "0.5")),
]


OPEN = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_memory_stats",'
BODIES = {
    "nothing": b"",
    "blanks": b" \n",
    "no json": b"canary",
    "cut off": OPEN + b'"arguments":{',
    "two documents": b"{} {}",
    "a comma too many": b'{"jsonrpc":"2.0",}',
    "single quotes": b"{'canary':1}",
    "invalid utf-8": b'{"canary":"\xff\xfe"}',
    "an overlong slash": b'{"canary":"\xc0\xaf"}',
    "a surrogate in utf-8": b'{"canary":"\xed\xa0\x80"}',
    "a raw nul": b'{"canary":"\x00"}',
    "a byte order mark": b"\xef\xbb\xbf" + OPEN + b'"arguments":{}}}',
    "utf-16": (OPEN + b'"arguments":{}}}').decode().encode("utf-16"),
    "utf-16 without a mark": (OPEN + b'"arguments":{}}}').decode().encode("utf-16-le"),
    "utf-32": (OPEN + b'"arguments":{}}}').decode().encode("utf-32-be"),
    "65 levels": OPEN + b'"arguments":' + b'{"a":' * 63 + b"1" + b"}" * 65,
    "1,000 levels": OPEN + b'"arguments":' + b'{"a":' * 1_000 + b"1" + b"}" * 1_002,
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "100,000 levels, never closed": b'{"a":' * 100_000,
    "a name twice": b'{"jsonrpc":"2.0","jsonrpc":"2.0"}',
    "a name twice, further down": OPEN + b'"arguments":{"canary":1,"canary":2}}}',
    "a name twice, once escaped": OPEN + rb'"arguments":{"a":1,"\u0061":2}}}',
    "NaN": OPEN + b'"arguments":{"limit":NaN}}}',
    "Infinity": OPEN + b'"arguments":{"limit":Infinity}}}',
    "-Infinity": OPEN + b'"arguments":{"limit":-Infinity}}}',
    "5,000 digits": OPEN + b'"arguments":{"limit":1' + b"0" * 5_000 + b"}}}",
}


NO_CALLS = [
    "null", "5", '"canary"', "[]", "{}", "[{}]", '{"jsonrpc":"1.0","id":1,"method":"canary"}',
    '{"jsonrpc":"2.0","id":1,"method":7}',
    '{"jsonrpc":"2.0","id":1,"method":"unheard/of"}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["canary"]}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    '{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"canary"}}',
]  # fmt: skip


SYNTAX = [
    '"', '""', '"heron', "'", "''; DROP TABLE memories; --", "NEAR(", "NEAR(heron pond, 2)", "*",
    "heron*", "body:heron", "namespace:bob", "secret_note:heron", "-heron", "-body:", "NOT",
    "heron NOT pond", "AND OR NOT", "heron AND", "(heron", ")", "(" * 300 + "heron" + ")" * 300,
    "^heron", "{heron pond}:", "heron + pond", "c++", "user@example.com", "50%", "%", "_", "\\",
    "heron \\", "[heron]", "\N{SMILING FACE WITH SUNGLASSES}", "a & (", "heron <-> pond", "<->",
    "heron:*", ":*", "!heron", "heron | ", "heron & !pond", "'heron' && 'pond'", "$1", "%s",
    "%(namespace)s", ":namespace", "?", "{0}", "/* heron */", "1=1", "OR 1=1", "heron\\x00",
    " OR ".join(["heron"] * 900), "NOT " * 300, "[[heron]]", "heron~2", "heron^4",
]  # fmt: skip


STRANGE = {
    "noncharacters": "Plan \ufffe\uffff\U0001ffff stays",
    "overrides": "abc \u202egnissorc\u202c \u2066isolate\u2069",
    "line separators": "one\u2028two\u2029three\x85four",
    "emoji": "family \U0001f468\u200d\U0001f469\u200d\U0001f467 flag \U0001f1f5\U0001f1f9",
    "tags": "tagged \U000e0068\U000e0069",
    "combining marks": "zalgo" + "\u0301" * 10_000,
    "both forms": "cafe\u0301 caf\u00e9",
    "control characters": "bell\x07 escape\x1b[31m delete\x7f",
    "outer blanks": "\n  kept as it is \t\r\n",
    "a word of 6,000 letters": "x" * 6_000,
}
