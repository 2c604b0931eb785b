"""The tests of models of the extra [embeddings] ask no hub: `make test-embeddings`."""

import os

# The hub's client reads it when it is imported, which is on first use.
os.environ["HF_HUB_OFFLINE"] = "1"
