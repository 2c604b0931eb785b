"""All breakages."""

from tests.sabotage import book, edge, erasure, finding, tenants, trust

BREAKAGES = (
    *tenants.BREAKAGES,
    *finding.BREAKAGES,
    *erasure.BREAKAGES,
    *book.BREAKAGES,
    *edge.BREAKAGES,
    *trust.BREAKAGES,
)
