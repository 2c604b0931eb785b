"""Moments in the form that callers give: a date, or a time with its zone."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from recall_server.domain.errors import Invalid

# How far ahead a time of speaking may be, as clocks differ; more is a mistake.
AHEAD_MAX = timedelta(days=1)
# How far ahead the moment of a question about the past may be.
CLOCKS_DIFFER = timedelta(minutes=5)


@dataclass(frozen=True)
class Past:
    """The moments that a reader asks for: what was known here at `known_at` (None: now), and what
    of it was true in the world at `as_of` (None: at any time).
    """

    as_of: datetime | None = None
    known_at: datetime | None = None


PRESENT = Past()


def utc_now() -> datetime:
    return datetime.now(UTC)


def parse_moment(text: str, name: str) -> datetime:
    """Return the moment that an ISO 8601 text names, in UTC; a date is the beginning of its day.
    Raises `Invalid`, naming the argument.
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
    """True if a moment has come; None never comes."""
    return moment is not None and moment <= now


def past(as_of: str, known_at: str, now: datetime) -> Past:
    """Return the moments that a reader asks for; "" for none. A `known_at` without a fraction
    includes all of its second, as moments are shown in seconds. Raises `Invalid` if a moment cannot
    be read, or is in the future.
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


def check_times(
    now: datetime,
    said_at: datetime | None,
    expires_at: datetime | None = None,
    *,
    name: str = "occurred_at",
) -> None:
    """Raise `Invalid` if words are to be said (the argument `name`) more than a day ahead, or have
    expired.
    """
    if said_at is not None and said_at > now + AHEAD_MAX:
        raise Invalid(f"{name} lies in the future. Send when it was said, or leave it out.")
    if expires_at is not None and expires_at <= now:
        raise Invalid("expires_at has passed. Send a time to come, or leave it out.")
