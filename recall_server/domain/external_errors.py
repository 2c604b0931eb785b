"""Errors of other systems: models, receivers of push notifications, identity providers."""

from __future__ import annotations

from recall_server.domain.errors import Invalid, NotFound, RecallError, Unavailable


class PushUrlRefused(Invalid):
    """Nothing is sent to this URL. Give one that begins with https:// and names a public host."""

    code = "PUSH_URL_REFUSED"


class SecretKeyMissing(Invalid):
    """This server has no key to encrypt secrets. Leave out token and credentials, or have the
    operator set RECALL_SECRET_KEY.
    """

    code = "SECRET_KEY_MISSING"


class PushConfigNotFound(NotFound):
    """This task has no push configuration of this id. List those it has."""

    code = "PUSH_CONFIG_NOT_FOUND"


class AuthUnavailable(Unavailable):
    """The issuer of this token cannot be asked for its keys at the moment. Wait as long as
    Retry-After says, then send the call again.
    """

    code = "AUTH_UNAVAILABLE"

    def __init__(self, message: str | None = None, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PushWaits(Unavailable):
    """A delivery to this receiver is under way, or it pauses after a failure. It is tried again
    later.
    """

    code = "PUSH_WAITS"


class ModelUnavailable(Unavailable):
    """The language model does not answer. The text is kept and searchable, and is tried again."""

    code = "MODEL_UNAVAILABLE"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_s: float | None = None,
        permanent: bool = False,
    ) -> None:
        """`retry_after_s`: the wait that the service asked for. `permanent`: a retry alone will not
        help.
        """
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.permanent = permanent


class BudgetSpent(ModelUnavailable):
    """This namespace has used the language model as much as it may today. The text is kept and
    searchable, and memories are made of it tomorrow.
    """

    code = "BUDGET_SPENT"


class ModelAnswerInvalid(Unavailable):
    """The language model's answer could not be used. The text is kept and searchable."""

    code = "MODEL_ANSWER_INVALID"

    def __init__(self, message: str | None = None, *, permanent: bool = False) -> None:
        """`permanent`: the same text would get the same answer, as after a refusal."""
        super().__init__(message)
        self.permanent = permanent


class TaskFailed(Unavailable):
    """The task did not succeed. Start it again; ask the operator if it fails again."""

    code = "TASK_FAILED"


class EmbedderUnavailable(Unavailable):
    """The embedder does not answer. Search goes on by keywords and says so."""

    code = "EMBEDDER_UNAVAILABLE"


class RerankerUnavailable(Unavailable):
    """The re-ranker does not answer. The order of the hits stays as it was, and says so."""

    code = "RERANKER_UNAVAILABLE"


class PushFailed(RecallError):
    """The receiver of a push did not take it. It is tried again, and given up in the end."""

    code = "PUSH_FAILED"

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: the wait that the receiver asked for."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SecretUnreadable(RecallError):
    """A stored secret cannot be opened. Put back the key in RECALL_SECRET_KEY that sealed it."""

    code = "SECRET_UNREADABLE"
