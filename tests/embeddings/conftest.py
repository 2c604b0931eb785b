"""Models of the extra [embeddings], with no hub to ask: `make test-embeddings`."""

import os

# Read when the hub's client is imported, which is on first use.
os.environ["HF_HUB_OFFLINE"] = "1"
