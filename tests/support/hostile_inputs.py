"""Requests that are made to cost much. Add an entry to the table `INPUTS` to test another."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TEXT_CHARS = 250_000


@dataclass(frozen=True)
class Post:
    """A request, with or without a body. `{id}` in its path is the task of the answer before, or
    the first memory in it.
    """

    path: str
    body: bytes = b""
    method: str = "POST"
    in_chunks: bool = False
    """Each byte in a chunk of its own."""


@dataclass(frozen=True)
class Input:
    """A request, sent `times` times, and the last answer; `before` are sent first, with their jobs,
    in a database that has `LONG_TEXTS` if it `is_beside_long_texts`. With `works`, the jobs that it
    causes are measured too.
    """

    post: Post
    statuses: tuple[int, ...]
    before: Sequence[Post] = ()
    times: int = 1
    works: bool = False
    has_token: bool = True
    is_beside_long_texts: bool = False


def tool(name: str, **arguments: object) -> bytes:
    return _json(jsonrpc="2.0", id=1, method="tools/call", params=_call(name, arguments))


def _call(name: str, arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def _json(**value: Any) -> bytes:
    return json.dumps(value).encode()


def _odd(mode: bytes) -> bytes:
    """Return a search with an unknown mode that takes long to read."""
    return tool("search_memories", query="tea", mode=None).replace(b"null", mode)


def _said(parts: bytes) -> bytes:
    message = b'{"messageId":"m","role":"ROLE_USER","parts":[' + parts + b"]}"
    return b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":' + message + b"}}"


def _stored(text: str, **given: Any) -> Post:
    return Post("/v1/memories", _json(text=text, **given))


def _searched(query: str) -> Input:
    return Input(Post("/v1/search", _json(query=query)), (200,))


LINES = "\n".join(f"User: I own bike {n} and I live in town {n}." for n in range(5_000))
WORDS = " ".join(f"word{n}" for n in range(1_000))
KEYS = b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(130_000)) + b"}"
MANY_WORDS = " ".join(f"w{n}" for n in range(40_000))[:TEXT_CHARS]
MANY_TURNS = "\n".join(f"User: b{n}" for n in range(8_000)) + "\nUser: " + "a " * 70_000
UNKNOWN = b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(90_000)) + b"}"
BOMB = b"[" + b"[]," * 70 + b"]" * 2_000_000
CITIES = "User: " + " ".join(f"I live in Town{chr(65 + n % 26)}{n}." for n in range(200))
FIGS = "User: " + " ".join(f"I like fig{n} with cream and sugar on it." for n in range(100))
KEPT = {"text": CITIES, "policy": "keep_both"}
# One of a name that stands everywhere, and one of thousands of turns and memories. Storing them
# takes longer than all that is measured.
LONG_TEXTS = (_stored("a. " * 80_000), _stored(LINES[:100_000]))
LISTED = Post("/v1/memories", method="GET")

INPUTS: dict[str, Input] = {
    "many lists": Input(Post("/mcp", _odd(b"[" + b"[]," * 600_000 + b"0]")), (400,)),
    "many objects": Input(Post("/mcp", _odd(b"[" + b"{}," * 45_000 + b"0]")), (200,)),
    "many numbers": Input(Post("/mcp", _odd(b"[" + b"1," * 900_000 + b"0]")), (400,)),
    "many names": Input(Post("/mcp", _odd(KEYS)), (400,)),
    "many values in a data part": Input(
        Post("/a2a", _said(b'{"data":{"x":[' + b"{}," * 45_000 + b"0]}}")), (200,)
    ),
    "many parts": Input(Post("/a2a", _said(b'{"text":"a"},' * 30_000 + b'{"text":"a"}')), (200,)),
    "a long string": Input(Post("/mcp", _odd(b'"' + b"a" * 1_900_000 + b'"')), (200,)),
    "a long text": Input(_stored(LINES[:TEXT_CHARS]), (202,)),
    "a text of one word": Input(_stored("a" * TEXT_CHARS), (202,)),
    "a query of many words": _searched(WORDS[:8_000]),
    "many unknown names": Input(Post("/v1/search", UNKNOWN), (400,)),
    "many unknown names of a method": Input(
        Post("/mcp", b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + UNKNOWN + b"}"),
        (400,),
    ),
    "many names besides arguments": Input(
        Post("/mcp", tool("search_memories", query="tea")[:-2] + b"," + UNKNOWN[1:] + b"}"), (400,)
    ),
    "many unknown names in a list": Input(
        Post("/v1/memories", b'{"messages":[' + UNKNOWN + b"]}"), (400,)
    ),
    "many wrong messages": Input(
        Post("/v1/memories", b'{"messages":[' + b"{}," * 45_000 + b"{}]}"), (400,)
    ),
    "many wrong labels": Input(
        Post("/v1/search", b'{"query":"tea","containers":[' + b"1," * 90_000 + b"1]}"), (400,)
    ),
    "a text of many words": Input(_stored(MANY_WORDS), (202,)),
    "a query of ligatures": Input(
        Post("/v1/search", _json(query="\ufdfa" * 2_000)),
        (200,),
        before=(_stored("\ufdfa" * 80_000), _stored(MANY_WORDS)),
    ),
    "an erasure of what stands everywhere": Input(
        Post("/v1/erasure", _json(subject="a", dry_run=True)),
        (200,),
        is_beside_long_texts=True,
    ),
    "an erasure of what stands thousands of times beside many turns": Input(
        Post("/v1/erasure", _json(subject="a")), (200,), before=(_stored(MANY_TURNS),), works=True
    ),
    "an export about what stands everywhere": Input(
        Post("/v1/export?subject=user", method="GET"),
        (200,),
        before=(_stored(LINES[:40_000]), _stored(FIGS), _stored("a. " * 40_000)),
    ),
    "an export about a name beyond ASCII": Input(
        Post("/v1/export?subject=Zo%C3%AB", method="GET"),
        (200,),
        before=(_stored("Zo\u00eb sah Zo\u00eb. " * 9_000),),
    ),
    "ends of lists": Input(Post("/v1/search", BOMB), (400,)),
    "ends of lists, without a token": Input(Post("/v1/search", BOMB), (401,), has_token=False),
    "chunks of one byte": Input(Post("/v1/search", b"[" * 200_000, in_chunks=True), (400,)),
    "chunks of one byte, without a token": Input(
        Post("/v1/search", b"[" * 200_000, in_chunks=True), (401,), has_token=False
    ),
    "a text of secrets": Input(_stored('"password="' * 6_000), (202,)),
    "a query of months": _searched("Dec " * 500),
    # With more of them, the code before this test would not have answered for hours.
    "a polite wish of blanks": Input(
        Post("/v1/memories:submit", _json(text="please" + " " * 6_000 + "x")), (413,)
    ),
    "a text of paragraphs": Input(_stored("\n\n".join("abcdefghij" * 1_000)), (202,)),
    "answers that say nothing": Input(
        Post("/a2a/{id}/resume", _json(resolution="hm")),
        (200, 202),
        before=(
            _stored("User: I live in Lisbon."),
            Post("/a2a", _json(skill="consolidate_memories", input={"text": CITIES})),
        ),
        times=10,
    ),
    "a long path of a hook": Input(
        Post("/v1/hooks/user-prompt-submit", _json(cwd="/a" * 900_000, prompt="tea")), (200,)
    ),
    "a timeline of many values that are all kept": Input(
        Post("/v1/timeline?entity=user&attribute=lives_in", method="GET"),
        (200,),
        before=(Post("/a2a", _json(skill="consolidate_memories", input=KEPT)),),
    ),
    "forgetting a memory of a long text": Input(
        Post("/v1/memories/{id}", method="DELETE"),
        (200,),
        before=(LISTED,),
        is_beside_long_texts=True,
    ),
    "correcting a memory of a long text": Input(
        Post("/v1/memories/{id}", _json(text="The user likes plums."), method="PATCH"),
        (200,),
        before=(LISTED,),
        is_beside_long_texts=True,
    ),
    "a text of many turns": Input(_stored(MANY_TURNS), (202,)),
    "one attribute of many values": Input(
        _stored("User: " + " ".join(f"I like fig{n}." for n in range(12))),
        (202,),
        before=(_stored(FIGS),),
        works=True,
    ),
    "a merge of many memories": Input(
        Post("/v1/consolidations", _json(topic="figs", dry_run=True)),
        (200, 202),
        before=(_stored(FIGS, topic="figs"),),
        works=True,
    ),
}
