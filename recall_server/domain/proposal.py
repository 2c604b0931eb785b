"""Proposals: changes of memory that wait until somebody accepts, edits or rejects them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recall_server.domain.permissions import Scope

PREFIX = "prop"


class ProposalKind(StrEnum):
    """The proposed action: remember, correct or forget something, change a memory by hand
    (`UPDATE`), or add a memory that a model extracted and doubts (`EXTRACT`).
    """

    REMEMBER = "remember"
    CORRECT = "correct"
    UPDATE = "update"
    FORGET = "forget"
    EXTRACT = "extract"

    @property
    def scope(self) -> Scope:
        """The scope that a token needs to answer it."""
        return {ProposalKind.FORGET: Scope.FORGET, ProposalKind.UPDATE: Scope.EDIT}.get(
            self, Scope.WRITE
        )


@dataclass(frozen=True)
class Proposal:
    """A proposed change.

    `new`: the ids of the memories that it would add; until then nothing finds them.
    `targets`: the ids of the memories that it would replace or forget.
    `closed_at`: when it was answered or withdrawn.
    """

    id: str
    kind: ProposalKind
    new: tuple[str, ...]
    targets: tuple[str, ...]
    made_by: str | None
    opened_at: datetime
    closed_at: datetime | None = None
    choice: str | None = None
    decided_by: str | None = None

    @property
    def whole(self) -> bool:
        """Whether all that it is about is there: of one that was taken in, a memory may be left
        out.
        """
        adds = self.kind is not ProposalKind.FORGET
        changes = self.kind not in {ProposalKind.REMEMBER, ProposalKind.EXTRACT}
        return bool(self.new) == adds and bool(self.targets) == changes


def is_proposal(review_id: str) -> bool:
    """True if the id of a review is that of a proposal."""
    return review_id.startswith(f"{PREFIX}_")
