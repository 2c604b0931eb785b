"""Moments as callers give them: a date, or a time with its zone."""

from datetime import UTC, date, datetime, time, timedelta

from recall_server.domain.errors import Invalid

# Clocks differ; what lies further ahead is a mistake.
AHEAD_MAX = timedelta(days=1)


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


def not_ahead(moment: datetime, name: str, now: datetime) -> datetime:
    """The same moment. Raises `Invalid` where it lies more than a day ahead."""
    if moment > now + AHEAD_MAX:
        raise Invalid(f"{name} lies in the future. Send when it was said, or leave it out.")
    return moment
