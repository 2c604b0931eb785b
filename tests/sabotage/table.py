"""All breakages."""

from tests.sabotage import audit, erasure, limits, models, requests, search, tenants, trust

BREAKAGES = (
    *tenants.BREAKAGES,
    *search.BREAKAGES,
    *erasure.BREAKAGES,
    *audit.BREAKAGES,
    *requests.BREAKAGES,
    *trust.BREAKAGES,
    *limits.BREAKAGES,
    *models.BREAKAGES,
)
