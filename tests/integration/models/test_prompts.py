"""The prompts are text files. Each is complete and versioned, and its example is a good answer."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources

import pytest

from recall_server.integrations import llm
from recall_server.integrations.llm.roles import Entry, read_entries
from tests.support.models import passage_of

NAMES = sorted(
    file.name.removesuffix(".md")
    for file in resources.files(llm).joinpath("prompts").iterdir()
    if file.name.endswith(".md")
)
# A changed text needs a new version, since memories record the version of their prompt.
WRITTEN = {
    ("extract", "1"): "4df646aee1119573",
    ("merge", "1"): "8a13defb66daeff4",
    ("judge", "1"): "21730fa1cee667c6",
}
GOOD = "version: 3\n\n# System\n\nBe {{mood}}.\n\n# User\n\nSay {{word}}, {{word}}!\n"


@pytest.mark.parametrize("name", NAMES)
def test_each_prompt_is_known_by_the_version_of_its_exact_text(name: str) -> None:
    prompt = llm.load_prompt(name)
    digest = hashlib.sha256(f"{prompt.system}\n{prompt.user}".encode()).hexdigest()[:16]

    assert WRITTEN[name, prompt.version] == digest, "the text changed: give it a new version"


@pytest.mark.parametrize("name", NAMES)
def test_each_prompt_is_filled_without_a_rest(name: str) -> None:
    prompt = llm.load_prompt(name)

    system, user = prompt.fill(**dict.fromkeys(prompt.placeholders, "VALUE"))

    assert "{{" not in system + user
    assert "}}" not in system + user
    assert "VALUE" in user


def test_what_others_said_goes_into_the_user_message_only() -> None:
    prompt = llm.load_prompt("extract")

    assert set(re.findall(r"{{(\w+)}}", prompt.system)) == {"attributes"}
    assert set(re.findall(r"{{(\w+)}}", prompt.user)) == {"date", "nonce", "passage"}


def test_the_example_in_the_prompt_is_an_answer_that_would_be_kept_whole() -> None:
    example = re.search(r"```json\n(.*?)```", llm.load_prompt("extract").system, re.DOTALL)
    assert example
    entries = json.loads(example[1])["memories"]
    system = llm.load_prompt("extract").system
    said = re.findall(r'^\d, (\w+): "(.*)"$', system, re.MULTILINE)

    kept, rejected = read_entries(entries, passage_of(*said, first_index=1))

    assert (len(kept), rejected) == (len(entries), 0)
    assert all(one.keys() == Entry.model_fields.keys() - {"needs_review"} for one in entries)


def test_a_prompt_is_read_and_filled() -> None:
    prompt = llm.parse_prompt("hello", GOOD)

    filled = prompt.fill(mood="brief", word="hi")

    assert (prompt.name, prompt.version) == ("hello", "3")
    assert filled == ("Be brief.", "Say hi, hi!")


def test_a_value_that_looks_like_a_placeholder_is_not_filled_in_again() -> None:
    _, user = llm.parse_prompt("hello", GOOD).fill(mood="brief", word=r"{{mood}} \1 \g<0>")

    assert user == r"Say {{mood}} \1 \g<0>, {{mood}} \1 \g<0>!"


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"mood": "brief"}, "missing word; unknown none"),
        ({"mood": "brief", "word": "hi", "extra": ""}, "missing none; unknown extra"),
    ],
)
def test_a_missing_or_unknown_placeholder_is_refused(values: dict[str, str], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        llm.parse_prompt("hello", GOOD).fill(**values)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 3\n", ""),
        ("version: 3\n", "version:\n"),
        ("# User", "# Users"),
        ("# System\n", ""),
    ],
)
def test_a_prompt_file_with_a_mistake_is_refused(old: str, new: str) -> None:
    with pytest.raises(ValueError, match="prompt hello: "):
        llm.parse_prompt("hello", GOOD.replace(old, new))
