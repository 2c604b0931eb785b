"""A sealed secret opens only with its key and at its place."""

from base64 import urlsafe_b64encode

import pytest

from recall_server.domain.errors import Invalid, SecretKeyMissing, SecretUnreadable
from recall_server.integrations.keys import Sealer

OLD, NEW = (urlsafe_b64encode(bytes([byte]) * 32).decode() for byte in (1, 2))
SECRETS = {"token": "plain words"}
PLACE = ("alice", "task_1")


def test_what_is_sealed_is_opened_at_its_place() -> None:
    sealed = Sealer([NEW]).seal(SECRETS, PLACE)

    assert b"plain words" not in sealed
    assert Sealer([NEW]).open(sealed, PLACE) == SECRETS


def test_at_another_place_it_stays_shut() -> None:
    sealed = Sealer([NEW]).seal(SECRETS, PLACE)
    with pytest.raises(SecretUnreadable):
        Sealer([NEW]).open(sealed, ("bob", "task_1"))


def test_a_key_that_was_replaced_still_opens_what_it_sealed() -> None:
    before = Sealer([OLD]).seal(SECRETS, PLACE)
    after = Sealer([NEW, OLD]).seal(SECRETS, PLACE)

    assert Sealer([NEW, OLD]).open(before, PLACE) == SECRETS
    assert Sealer([NEW]).open(after, PLACE) == SECRETS
    with pytest.raises(SecretUnreadable):
        Sealer([NEW]).open(before, PLACE)


def test_without_a_key_nothing_is_sealed_or_opened() -> None:
    sealed = Sealer([NEW]).seal(SECRETS, PLACE)
    for keys in ([], [""], [" "]):
        with pytest.raises(SecretKeyMissing):
            Sealer(keys).seal(SECRETS, PLACE)
        with pytest.raises(SecretKeyMissing):
            Sealer(keys).open(sealed, PLACE)


@pytest.mark.parametrize("key", ["short", "a" * 44, OLD[:-2], f"{OLD} {NEW}"])
def test_a_key_that_is_none_is_told_at_once_and_not_shown(key: str) -> None:
    Sealer([OLD])
    with pytest.raises(Invalid, match="RECALL_SECRET_KEY") as refused:
        Sealer([OLD, key])

    assert key not in refused.value.message
