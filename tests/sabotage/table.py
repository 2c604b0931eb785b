"""All breakages."""

from tests.sabotage import book, edge, erasure, finding, limits, tenants

BREAKAGES = (
    *tenants.BREAKAGES,
    *finding.BREAKAGES,
    *erasure.BREAKAGES,
    *book.BREAKAGES,
    *edge.BREAKAGES,
    *limits.BREAKAGES,
)
