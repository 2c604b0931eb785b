"""The memory that AI agents share, and the one that an operator can answer for.

cli        the command line
app        puts the parts together
surface    the doors: bearer auth, MCP tools, HTTP routes
worker     runs the jobs that the doors leave behind
services   the verbs: remember, extract, reconcile, commit, recall, audit
storage    one store over SQLite or Postgres
providers  outside minds: language models, embedders, the offline rules
prompts    every word that is said to a model
domain     words and rules, pure
"""

__version__ = "0.1.0"
