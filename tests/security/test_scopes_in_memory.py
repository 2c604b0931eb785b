"""The items of an access scope are kept in memory, for a limited number of scopes."""

import numpy as np

from recall_server.domain.permissions import AccessScope
from recall_server.storage.index.documents import SCOPES_MAX, Documents

TOKEN = AccessScope(topics=frozenset({"work"}))


def held(documents: Documents, scope: AccessScope) -> bool:
    return documents.scope(scope)[0] > 0


def documents() -> Documents:
    found = Documents()
    found.update(np.array([1, 2]), np.array([True, True]))
    return found


def test_filters_of_searches_never_displace_what_a_token_may_see() -> None:
    kept = documents()
    kept.extend_scope(TOKEN, 2, np.array([1]))
    for number in range(2 * SCOPES_MAX):
        kept.extend_scope(TOKEN.inside(None, [str(number)]), 2, np.array([1]))

    assert held(kept, TOKEN)
    assert held(kept, TOKEN.inside(None, [str(2 * SCOPES_MAX - 1)]))
    assert not held(kept, TOKEN.inside(None, ["0"]))


def test_of_tokens_the_one_that_asked_longest_ago_gives_way() -> None:
    kept = documents()
    scopes = [AccessScope(topics=frozenset({str(number)})) for number in range(SCOPES_MAX + 1)]
    for scope in scopes:
        kept.extend_scope(scope, 2, np.array([1]))

    assert [held(kept, scope) for scope in scopes] == [False, *[True] * SCOPES_MAX]
