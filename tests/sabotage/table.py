"""All breakages."""

from tests.sabotage import audit, erasure, limits, requests, search, tenants, trust

BREAKAGES = (
    *tenants.BREAKAGES,
    *search.BREAKAGES,
    *erasure.BREAKAGES,
    *audit.BREAKAGES,
    *requests.BREAKAGES,
    *trust.BREAKAGES,
    *limits.BREAKAGES,
)
