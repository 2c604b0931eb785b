"""Tasks that agents delegate: consolidate, ask, resume, push."""
