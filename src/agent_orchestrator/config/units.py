"""Values with a unit: durations, sizes, money, pauses. Each parser takes text and raises `ValueError` that says what is accepted."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)[a-z]*", re.IGNORECASE)
_DURATION = re.compile(
    r"\s*(?:\d+(?:\.\d+)?\s*(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?)\s*)+", re.IGNORECASE
)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_MONEY = re.compile(r"\s*\$?\s*(\d+(?:\.\d+)?)\s*(usd|\$|dollars?)?\s*", re.IGNORECASE)
_TOKENS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([km]?)\s*tokens?\s*", re.IGNORECASE)
_QUIET_HOURS = re.compile(
    r"\s*([0-2]?\d)(?::([0-5]\d))?\s*(?:\.\.|-|–)\s*([0-2]?\d)(?::([0-5]\d))?(?:\s+(?!all\b)([\w/+-]+))?(\s+all)?\s*",
    re.ASCII,
)
_RATE = re.compile(r"\s*(\d{1,6})\s*(?:/|per)\s*(.+)")
_MAX_QUOTED_LENGTH = 40
MAX_COUNT = 1_000_000
"""The largest number of anything that is counted."""
MAX_DURATION = 36_525 * 86_400.0
"""The longest duration, in seconds: a date more than a hundred years ahead is not supported."""
MAX_SIZE = 1 << 60
"""The largest size, in bytes."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What may be spent, in dollars or tokens."""

    value: float
    unit: str = "USD"

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class EscalateAfter:
    """When a person is notified: after a number of attempts, or after an amount of time. One of both is set."""

    count: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.seconds:g}s"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause before the second attempt, in seconds, and the longest pause."""

    first: float
    most: float

    def __str__(self) -> str:
        return f"{self.first:g}s..{self.most:g}s"


@dataclass(frozen=True, slots=True)
class QuietPeriod:
    """The quiet hours, in minutes since midnight; they may span midnight."""

    start: int
    end: int
    zone: str = ""
    """The time zone, such as `Europe/Berlin`; "": the machine's."""
    urgent: bool = True
    """Whether urgent notifications are sent during quiet hours."""

    def __str__(self) -> str:
        hours = "..".join(f"{at // 60:02d}:{at % 60:02d}" for at in (self.start, self.end))
        return " ".join(filter(None, (hours, self.zone, "" if self.urgent else "all")))


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of things per number of seconds."""

    most: int
    per: float

    def __str__(self) -> str:
        return f"{self.most}/{format_duration(self.per)}"


def parse_rate(value: Any) -> Rate:
    """Parse a rate such as `20/10m`."""
    if isinstance(value, Rate):
        return value
    match = _RATE.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_QUOTED_LENGTH else None
    try:
        parsed = Rate(int(match[1]), parse_duration(match[2])) if match else None
    except ValueError:
        parsed = None
    if parsed is None or parsed.most < 1 or parsed.per <= 0:
        raise ValueError(f"{quote_value(value)} is no rate; accepted: 20/10m")
    return parsed


def parse_quiet_hours(value: Any) -> QuietPeriod:
    """Parse quiet hours: `22:00..07:00`, `22:00..07:00 Europe/Berlin`, or a map of hours, timeZone and urgent."""
    if isinstance(value, QuietPeriod):
        return value
    if isinstance(value, dict):
        return _quiet_map(value)
    match = _QUIET_HOURS.fullmatch(value) if isinstance(value, str) and len(value) <= 2 * _MAX_QUOTED_LENGTH else None
    if match:
        start, end = (int(match[group]) * 60 + int(match[group + 1] or 0) for group in (1, 3))
        if max(start, end) <= 24 * 60 and start % 1440 != end % 1440:
            return QuietPeriod(start % 1440, end % 1440, _time_zone(match[5] or ""), not match[6])
    raise ValueError(f"{quote_value(value)} are no quiet hours; accepted: 22:00..07:00, or 22:00..07:00 Europe/Berlin")


def _quiet_map(value: dict[str, Any]) -> QuietPeriod:
    remaining = dict(value)
    zone = remaining.pop("timeZone", None) or ""
    hours, urgent = remaining.pop("hours", None), remaining.pop("urgent", True)
    if remaining:
        raise ValueError(
            f"{quote_value(next(iter(remaining)))} is no key of quiet hours; accepted: hours, timeZone, urgent"
        )
    if not isinstance(urgent, bool):
        raise ValueError(f"{quote_value(urgent)} is not true or false; accepted: urgent: true, or false")
    parsed = parse_quiet_hours(hours)
    return QuietPeriod(parsed.start, parsed.end, _time_zone(zone) or parsed.zone, urgent and parsed.urgent)


def _time_zone(name: Any) -> str:
    """Return the name of a time zone that this machine knows; "" stays ""."""
    if name == "":
        return ""
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise ValueError(f"{quote_value(name)} is no time zone known here; accepted: Europe/Berlin, UTC") from None


def parse_duration(value: Any) -> float:
    """Parse a duration such as `30m`, `1h30m`, `500ms` or a number of seconds, and return seconds."""
    if isinstance(value, str):
        text = value.strip()
        if _is_number(text):
            return _check_duration(float(text), value)
        if len(text) <= _MAX_QUOTED_LENGTH and _DURATION.fullmatch(text):
            parts = _DURATION_PART.findall(text)
            return _check_duration(sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts), value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return _check_duration(value, value)
    raise ValueError(f"{quote_value(value)} is no duration; accepted: 30s, 10m, 1h30m, 2d, or a number of seconds")


def _check_duration(seconds: float, value: Any) -> float:
    if seconds > MAX_DURATION:
        raise ValueError(f"{quote_value(value)} is too long; accepted: up to {format_duration(MAX_DURATION)}")
    return float(seconds)


def format_duration(seconds: float) -> str:
    """Format a duration the way people write it: `30m`, `20s`."""
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def parse_size(value: Any) -> int:
    """Parse a size such as `4g`, `512m`, `1.5 GiB` or a number of bytes, and return bytes."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value[:_MAX_QUOTED_LENGTH])
        if match and len(value) <= _MAX_QUOTED_LENGTH:
            return _check_size(int(float(match[1]) * 1024.0 ** " kmgt".index(match[2].lower() or " ")), value)
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _check_size(int(value), value)
    raise ValueError(f"{quote_value(value)} is no size; accepted: 512m, 4g, or a number of bytes")


def _check_size(bytes_: int, value: Any) -> int:
    if bytes_ > MAX_SIZE:
        raise ValueError(f"{quote_value(value)} is too large; accepted: up to {MAX_SIZE >> 40}t")
    return bytes_


def parse_amount(value: Any) -> Amount:
    """Parse an amount such as `5 USD`, `$5`, `5` (dollars) or `2M tokens`."""
    if isinstance(value, Amount):
        return value
    if isinstance(value, str) and len(value) <= _MAX_QUOTED_LENGTH:
        if match := _MONEY.fullmatch(value):
            return Amount(_check_finite(float(match[1])))
        if match := _TOKENS.fullmatch(value):
            return Amount(_check_finite(float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()]), "tokens")
    elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return Amount(_check_finite(value))
    raise ValueError(f"{quote_value(value)} is no amount; accepted: 5 USD, 0.50 USD, or 2M tokens")


def parse_backoff(value: Any) -> Backoff:
    """Parse a pause such as `30s..10m`, or one duration that does not grow."""
    if isinstance(value, Backoff):
        return value
    if isinstance(value, str) and ".." in value:
        low, _, high = value.partition("..")
        first, most = parse_duration(low), parse_duration(high)
    else:
        first = most = parse_duration(value)
    if most < first:
        raise ValueError(f"{quote_value(value)} ends before it begins; accepted: 30s..10m")
    return Backoff(first, most)


def parse_escalate_after(value: Any) -> EscalateAfter:
    """Parse a count (`2`) or a duration (`30m`)."""
    if isinstance(value, EscalateAfter):
        return value
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10:
        text = int(text)
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text <= MAX_COUNT:
        return EscalateAfter(count=int(text))
    if isinstance(text, str):
        try:
            return EscalateAfter(seconds=parse_duration(text))
        except ValueError:
            pass
    raise ValueError(f"{quote_value(value)} is neither count nor duration; accepted: 2 (attempts) or 30m")


def quote_value(value: Any) -> str:
    """Return a value as an error may quote it: short, on one line."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, int | float) else f'"{value}"'
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]


def _is_number(text: str) -> bool:
    return len(text) <= _MAX_QUOTED_LENGTH and re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) is not None


def _check_finite(value: float) -> float:
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"{quote_value(value)} is not a finite number")
    return result
