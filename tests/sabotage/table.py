"""All breakages."""

from tests.sabotage import book, edge, erasure, tenants

BREAKAGES = (*tenants.BREAKAGES, *erasure.BREAKAGES, *book.BREAKAGES, *edge.BREAKAGES)
