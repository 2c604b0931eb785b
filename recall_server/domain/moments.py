"""Moments as callers give them: a date, or a time with its zone."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from recall_server.domain.errors import Invalid

# Clocks differ; what lies further ahead is a mistake.
AHEAD_MAX = timedelta(days=1)
# A question about the past allows for less.
CLOCKS_DIFFER = timedelta(minutes=5)


@dataclass(frozen=True)
class Past:
    """The moments that a reader asks for: what was known here at `known_at`, and what of it was
    true in the world at `as_of`. None: what is known now, and whatever was true.
    """

    as_of: datetime | None = None
    known_at: datetime | None = None


PRESENT = Past()


def utc_now() -> datetime:
    return datetime.now(UTC)


def parse_moment(text: str, name: str) -> datetime:
    """The moment that an ISO 8601 text names, in UTC; a date is the beginning of its day. Raises
    `Invalid`, naming the argument.
    """
    try:
        return datetime.combine(date.fromisoformat(text.strip()), time(), UTC)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Invalid(
        f"{name} must be a date such as 2026-03-01, or a time with its zone such as "
        "2026-03-01T09:30:00Z."
    )


def passed(moment: datetime | None, now: datetime) -> bool:
    """Whether it has come; None never does."""
    return moment is not None and moment <= now


def ahead(moment: datetime, name: str, now: datetime) -> datetime:
    """The same moment. Raises `Invalid` where it has passed."""
    if passed(moment, now):
        raise Invalid(f"{name} has passed. Send a time to come, or leave it out.")
    return moment


def past(as_of: str, known_at: str, now: datetime) -> Past:
    """The moments that a reader asks for; "" for none. Of a `known_at` to the second all of that
    second is known, as moments are shown so. Raises `Invalid` on one that cannot be read, or lies
    in the future.
    """
    known = parse_moment(known_at, "known_at") if known_at else None
    if known is not None and "T" in known_at and not known.microsecond:
        known = known.replace(microsecond=999_999)
    true = parse_moment(as_of, "as_of") if as_of else None
    for name, moment in (("known_at", known), ("as_of", true)):
        if moment is not None and moment > now + CLOCKS_DIFFER:
            raise Invalid(
                f"{name} lies in the future. Send a moment that has passed, or leave it out."
            )
    return Past(true, known)


def not_ahead(moment: datetime, name: str, now: datetime) -> datetime:
    """The same moment. Raises `Invalid` where it lies more than a day ahead."""
    if moment > now + AHEAD_MAX:
        raise Invalid(f"{name} lies in the future. Send when it was said, or leave it out.")
    return moment
