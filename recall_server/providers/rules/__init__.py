"""The offline extractor: what a passage states, found by rules, without a model or the network."""

from recall_server.providers.rules.extractor import RulesExtractor

__all__ = ["RulesExtractor"]
