"""The entry point of the bundle: `recall stdio`."""

import sys

from recall_server.cli import main

sys.argv[1:] = ["stdio"]
main()
