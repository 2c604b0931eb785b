"""All breakages."""

from tests.sabotage import book, edge, erasure, finding, limits, tenants, trust

BREAKAGES = (
    *tenants.BREAKAGES,
    *finding.BREAKAGES,
    *erasure.BREAKAGES,
    *book.BREAKAGES,
    *edge.BREAKAGES,
    *trust.BREAKAGES,
    *limits.BREAKAGES,
)
