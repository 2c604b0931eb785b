"""Clients of MCP and A2A by other people, and conformance suites, run against the real server:
`make interop`.
"""
