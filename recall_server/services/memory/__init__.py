"""Store texts, extract memories, reconcile them."""
