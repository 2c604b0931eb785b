"""Outside minds, each a Protocol and its adapters: extractors and embedders."""
