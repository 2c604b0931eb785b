"""The rules of the chain, without a database."""

from typing import Any

import pytest

from recall_server.domain import audit
from recall_server.domain.audit import START, Checkpoint, Head, Verifier
from recall_server.domain.errors import AuditBroken

KEY = b"k" * 32
Record = dict[str, Any]


def sealed(record: Record, key: bytes = KEY) -> Record:
    """Add the right digest and code."""
    digest = audit.digest(record)
    return {**record, "digest": digest, "mac": audit.mac(key, digest)}


def book(length: int, *, after: Head = START, word: str = "said") -> list[Record]:
    records = []
    for seq in range(after.seq + 1, after.seq + length + 1):
        salt, values = bytes([seq]) * 16, {"topic": f"topic {seq}"}
        record = sealed(
            {
                "namespace": "alice",
                "seq": seq,
                "prev": after.digest,
                "counts": {"hits": seq},
                "code": word,
                "detail_digest": audit.detail_digest(salt, values),
                "details": {"salt": salt.hex(), "values": values},
            }
        )
        records.append(record)
        after = Head(seq, record["digest"])
    return records


def checkpoint(records: list[Record], seq: int) -> Checkpoint:
    return Checkpoint("alice", seq, records[seq - 1]["digest"], "2026-03-01T12:00:00+00:00")


def first_bad(records: list[Record], *checkpoints: Checkpoint, key: bytes | None = None) -> int:
    """Return the number of the first bad record, or 0 if all are sound."""
    verifier = Verifier("alice", checkpoints=checkpoints, mac_key=key)
    try:
        for record in records:
            verifier.take(record)
        verifier.finish()
    except AuditBroken as error:
        return error.seq
    return 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({"é": "\u2028\u202e", "a": '"\\\n'}, '{"a":"\\"\\\\\\n","é":"\u2028\u202e"}'),
        ({}, "{}"),
    ],
)
def test_the_canonical_form_is_that_of_rfc_8785(value: object, text: str) -> None:
    assert audit.canonical(value) == text.encode()


@pytest.mark.parametrize("value", [0.5, {"a": [1.0]}, {"a": {"b": float("nan")}}])
def test_a_float_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match="float"):
        audit.canonical(value)


def test_an_audit_log_as_it_was_written_is_sound() -> None:
    records = book(5)

    assert first_bad([]) == 0
    assert first_bad(records, checkpoint(records, 2), checkpoint(records, 5), key=KEY) == 0


@pytest.mark.parametrize("name", ["code", "counts", "seq", "prev", "namespace", "detail_digest"])
def test_every_field_is_under_the_digest(name: str) -> None:
    records = book(3)
    records[1] = {**records[1], name: None if name != "seq" else 7}

    assert first_bad(records) == 2


def test_what_is_dropped_moved_or_added_is_named() -> None:
    one, two, three, four = book(4)
    other = {**sealed({**three, "code": "other"})}

    assert first_bad([one, three, four]) == 2
    assert first_bad([one, three, two, four]) == 2
    assert first_bad([one, two, two, three]) == 3
    assert first_bad([two, three]) == 1
    assert first_bad([one, two, other, four]) == 3
    assert first_bad([one, {}, three]) == 2
    assert first_bad([one, {"seq": 2}, three]) == 2
    assert first_bad([one, {**two, "code": 0.5}, three]) == 2
    assert first_bad([one, {**two, "details": "none"}, three]) == 2


def test_without_the_key_nobody_continues_the_chain() -> None:
    records = book(3)
    forged = sealed({**book(1, after=Head(3, records[2]["digest"]))[0]}, b"x" * 32)

    assert first_bad([*records, forged]) == 0  # The control: only the code is wrong.
    assert first_bad([*records, forged], key=KEY) == 4


def test_only_a_checkpoint_shows_that_the_end_was_cut_off_or_all_was_rewritten() -> None:
    records, rewritten = book(6), book(6, word="never said")
    grafted = [*records[:3], *book(3, after=Head(3, records[2]["digest"]), word="never said")]

    assert first_bad(records[:4], key=KEY) == 0
    assert first_bad(records[:4], checkpoint(records, 6)) == 5
    assert first_bad(records[:4], checkpoint(records, 3), checkpoint(records, 6)) == 5
    assert first_bad(rewritten, key=KEY) == 0
    assert first_bad(rewritten, checkpoint(records, 6)) == 1
    assert first_bad(grafted, key=KEY) == 0
    assert first_bad(grafted, checkpoint(records, 3), checkpoint(records, 5)) == 4


def test_of_two_checkpoints_of_one_record_that_differ_one_must_be_wrong() -> None:
    records, other = book(3), book(3, word="never said")

    assert first_bad(records, checkpoint(records, 3), checkpoint(other, 3)) > 0


def test_checkpoints_of_others_are_not_ours() -> None:
    records = book(2)
    bobs = Checkpoint("bob", 9, "f" * 64, "2026-03-01T12:00:00+00:00")

    assert first_bad(records, bobs) == 0


def test_details_may_be_gone_but_not_be_others() -> None:
    records = book(3)
    erased = [{k: v for k, v in record.items() if k != "details"} for record in records]
    changed = {**records[1], "details": {**records[1]["details"], "values": {"topic": "x"}}}
    never_had = sealed({**erased[0], "detail_digest": None})
    given = {**never_had, "details": records[0]["details"]}
    verifier = Verifier("alice", mac_key=KEY)
    for record in erased:
        verifier.take(record)

    assert verifier.details_erased == 3
    assert first_bad([records[0], changed, records[2]]) == 2
    assert first_bad([never_had]) == 0
    assert first_bad([given]) == 1


def test_a_part_is_verified_from_where_it_begins() -> None:
    records = book(5)
    verifier = Verifier("alice", start=Head(3, records[2]["digest"]))
    for record in records[3:]:
        verifier.take(record)

    assert verifier.head == Head(5, records[4]["digest"])
