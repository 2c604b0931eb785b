"""MCP over streamable HTTP."""
