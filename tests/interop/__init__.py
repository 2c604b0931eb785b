"""Other people's MCP and A2A clients and conformance suites, against our real server: `make interop`."""
