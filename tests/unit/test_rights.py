"""Rights: which are within which, and why a token is refused."""

from dataclasses import replace
from datetime import timedelta

import pytest

from recall_server.domain.errors import InsufficientScope, Invalid, OutsideAccessScope
from recall_server.domain.ids import NONE, container, namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import (
    FULL_ACCESS,
    AccessScope,
    Refusal,
    Rights,
    Scope,
    TokenInfo,
    narrower_or_equal,
)
from tests.support.runtime import NOON

ALL = frozenset(Scope)
WORK = AccessScope(topics=frozenset({"work"}))
HOUR = timedelta(hours=1)


def rights(*scopes: Scope, access_scope: AccessScope = FULL_ACCESS) -> Rights:
    return Rights(frozenset(scopes), access_scope)


def test_admin_stands_for_every_scope_of_a_namespace_and_to_write_is_to_propose() -> None:
    also = {Scope.WRITE: {Scope.PROPOSE}, Scope.ADMIN: ALL - {Scope.METRICS}}
    for one in Scope:
        allowed = {other for other in Scope if rights(one).allows(other)}
        assert allowed == {one, *also.get(one, ())}


def test_rights_without_the_scope_are_refused_and_so_are_those_to_a_part_of_the_whole() -> None:
    with pytest.raises(InsufficientScope):
        rights(Scope.READ).require(Scope.WRITE, whole_namespace=False)
    with pytest.raises(OutsideAccessScope):
        rights(Scope.ERASE, access_scope=WORK).require(Scope.ERASE, whole_namespace=True)
    rights(Scope.ERASE, access_scope=WORK).require(Scope.ERASE, whole_namespace=False)
    rights(Scope.ERASE).require(Scope.ERASE, whole_namespace=True)
    rights().require(None, whole_namespace=True)


@pytest.mark.parametrize(
    ("child", "parent", "narrower"),
    [
        (rights(Scope.READ), rights(Scope.READ), True),
        (rights(Scope.READ), rights(Scope.READ, Scope.WRITE), True),
        (rights(Scope.READ, Scope.WRITE), rights(Scope.READ), False),
        (rights(*(ALL - {Scope.METRICS})), rights(Scope.ADMIN), True),
        (rights(Scope.METRICS), rights(Scope.ADMIN), False),
        (rights(Scope.ADMIN), rights(*(ALL - {Scope.ADMIN})), False),
        (rights(access_scope=WORK), rights(), True),
        (rights(), rights(access_scope=WORK), False),
        (rights(Scope.READ), rights(Scope.ADMIN, access_scope=WORK), False),
        (
            rights(access_scope=WORK),
            rights(access_scope=AccessScope(frozenset({"work", "home"}))),
            True,
        ),
        (
            rights(access_scope=AccessScope(frozenset({"work", "home"}))),
            rights(access_scope=WORK),
            False,
        ),
        (
            rights(access_scope=AccessScope(agent_id="a")),
            rights(access_scope=AccessScope(agent_id="b")),
            False,
        ),
        (rights(access_scope=AccessScope(agent_id="a")), rights(), True),
        (rights(), rights(access_scope=AccessScope(agent_id="a")), False),
        (rights(), rights(access_scope=AccessScope(types=frozenset({MemoryType.FACT}))), False),
    ],
)
def test_a_token_is_narrower_only_if_it_is_in_every_way(
    child: Rights, parent: Rights, narrower: bool
) -> None:
    assert narrower_or_equal(child, parent) is narrower


def test_what_is_written_stays_in_the_topics_and_is_signed_by_the_agent() -> None:
    access_scope = AccessScope(topics=frozenset({"work"}), agent_id="planner")

    assert access_scope.writer("work", None) == "planner"
    assert access_scope.writer("work", "planner") == "planner"
    assert FULL_ACCESS.writer("home", "painter") == "painter"
    for topic, agent in (("home", None), ("Work", None), ("work ", None), ("work", "painter")):
        with pytest.raises(OutsideAccessScope):
            access_scope.writer(topic, agent)


def test_work_on_behalf_of_a_limited_token_is_confined_to_its_topic() -> None:
    two = AccessScope(topics=frozenset({"work", "home"}), agent_id="planner")
    rooms = AccessScope(containers=frozenset({"red", "blue"}))

    assert two.confined("work", "red") == AccessScope(frozenset({"work"}), None, "planner")
    assert two.confined("work", "red").within(two)
    assert rooms.confined("work", "red") == AccessScope(containers=frozenset({"red"}))
    assert FULL_ACCESS.confined("work", "red").everything


def test_a_container_is_a_name_under_a_strict_grammar() -> None:
    for name in ("a", "C024BE91L", "projects/recall", "chat:42", "a" * 128, "x.y_z-1", NONE):
        assert container(name) == name
    for name in (" a", "a ", "-a", "a/", "a b", "a\n", "é", "*", "a%", "a" * 129, "\u202ea"):
        with pytest.raises(Invalid, match="A container is"):
            container(name)


def test_what_is_written_goes_into_a_container_of_the_token() -> None:
    one, two = (AccessScope(containers=frozenset(names)) for names in ({"red"}, {"red", "blue"}))
    loose = AccessScope(containers=frozenset({NONE, "red"}))

    assert [FULL_ACCESS.container_for(name) for name in ("", "any")] == ["", "any"]
    assert [one.container_for(name) for name in ("", "red")] == ["red", "red"]
    assert [two.container_for(name) for name in ("red", "blue")] == ["red", "blue"]
    assert [loose.container_for(name) for name in ("", "red")] == ["", "red"]
    for access_scope, name in ((one, "blue"), (two, ""), (two, "green"), (loose, "blue")):
        with pytest.raises(OutsideAccessScope, match="into these containers only: '"):
            access_scope.container_for(name)


def test_a_part_is_narrowed_to_containers_and_never_widened() -> None:
    two = AccessScope(topics=frozenset({"work"}), containers=frozenset({"red", "blue"}))

    assert two.inside(None) == two
    for access_scope, names, left in (
        (two, {"red"}, {"red"}),
        (two, {"green"}, set()),
        (FULL_ACCESS, {"green"}, {"green"}),
    ):
        assert access_scope.inside(names) == replace(access_scope, containers=frozenset(left))
    assert two.inside({"red", "green"}).within(two)
    assert not two.within(two.inside({"red"}))


def token(**given: object) -> TokenInfo:
    return TokenInfo("acc_x", namespace("alice"), NOON, **given)  # type: ignore[arg-type]


def test_why_a_token_is_refused() -> None:
    """A token has ended at its very end. A token made at the moment of the line is accepted."""
    later = NOON + HOUR

    assert token().refusal(later) is None
    assert token(revoked_at=NOON).refusal(later) is Refusal.REVOKED
    assert token(expires_at=later).refusal(later - timedelta(seconds=1)) is None
    assert token(expires_at=later).refusal(later) is Refusal.EXPIRED
    assert token(expires_at=later, expired_at=later).refusal(NOON) is Refusal.EXPIRED
    assert token(not_before=NOON).refusal(later) is None
    assert token(not_before=NOON + timedelta(microseconds=1)).refusal(later) is Refusal.TOO_OLD
    assert token(uses_left=1).refusal(later) is None
    assert token(uses_left=0).refusal(later) is Refusal.USED_UP
