"""The product's concepts and the rules that need no I/O."""
