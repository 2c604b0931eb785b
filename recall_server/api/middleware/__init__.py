"""ASGI middleware, from the outermost to the innermost."""
