"""The protocols: MCP, A2A and HTTP."""
