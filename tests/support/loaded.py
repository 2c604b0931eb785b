"""Loads what every server loads for its first calls. The process that others are forked from
imports this: for a server, loading takes longer than the rest of its start.
"""

import gc

from recall_server.api.mcp import tools_of
from recall_server.api.operations import OPERATIONS
from recall_server.domain.text import terms
from recall_server.integrations import embeddings, redaction, rules
from recall_server.storage import bound_connection
from tests.support.engines import ENGINES

terms.load()
redaction.load_rules()
embeddings._load_wordllama()
rules._reader()
for engine in ENGINES:
    bound_connection.load(engine)
tools_of(OPERATIONS)
# The processes share this memory as long as no collector of theirs writes to it.
gc.collect()
gc.freeze()
