"""The demonstration: a real server, driven by a real MCP client, told a conversation.

stage      starts the server, lets the scenes play, takes it down
scenes     what is shown, one function a scene
story      what is told: the conversation that ships, or the user's own
questions  what is asked about it
agent      the MCP client
connecting how other clients get in
page       how it is printed
"""

from recall_server.demo.stage import show

__all__ = ["show"]
