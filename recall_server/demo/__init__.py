"""`recall demo`: a tour of a real server, through real MCP and A2A clients."""

from recall_server.demo.tour import show

__all__ = ["show"]
