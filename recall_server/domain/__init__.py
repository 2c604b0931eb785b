"""The ground floor: the product's words and the rules that need no I/O."""
