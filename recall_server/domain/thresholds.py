"""The thresholds by which words choose a memory, and by which a candidate counts as doubted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """All from 0 to 1.

    `match_min`, `correct_match_min`: the least score of a memory that a statement means, or that a
    correction means, which shares fewer words, as its value differs.
    `match_coverage`: how much of a score is the share of the statement's words that the memory has;
    the rest is the share of the memory's words that the statement has.
    `doubted_max`: the highest confidence of a candidate that needs a review.
    """

    match_min: float = 0.7
    correct_match_min: float = 0.6
    match_coverage: float = 0.8
    doubted_max: float = 0.5
