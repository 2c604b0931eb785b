"""The offline extractor: what a passage states, found by rules, without a model or the network.

From a passage to memories, in the order of the work:

- `extractor` is the port and chooses; `passages` reads turn by turn; `answers` joins an answer to
  the question before it; `gates` keeps out what states nothing.
- `sentences`, `clauses` and `parsing` cut ever smaller; `subjects` and `verbs` are what `parsing`
  looks for, `nouns` what tells kinds apart; `dates` finds times, by the table in `moments`.
- `statements` tries every reading. Of whole sentences: `procedures`, `orders`, `decisions`,
  `corrections`. Of clauses: `relations` (by the table of `predicates`), `passives`, `copula` (by
  `states` and `named`), `possessions`, `habits`, `plans`, `deeds`.
- `drafts` judges what was found and says whose it is; `wording` words it for a stranger.
"""

from recall_server.integrations.extraction.rules.extractor import RulesExtractor

__all__ = ["RulesExtractor"]
