"""Other people's clients of MCP and A2A, and suites, against our real server: `make interop`."""
