"""A typed client of recall-server. It calls a server over HTTP, and imports nothing of it."""

from recall_client._async_client import AsyncRecallClient
from recall_client._sync_client import RecallClient
from recall_client.errors import RecallError

__version__ = "0.1.0"

__all__ = ["AsyncRecallClient", "RecallClient", "RecallError"]
