"""The tables that belong to tenants, and those of the server."""

from recall_server.storage.tables import registry

SERVER_TABLES = {table.name for table in registry.TABLES if not table.tenant}
TENANT_TABLES = set(registry.TENANT)
