"""`python -m recall_server` is `recall`."""

from recall_server.cli import main

main()
