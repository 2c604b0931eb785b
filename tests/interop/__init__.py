"""Other people's MCP clients and conformance suites, against our real server: `make interop`."""
