"""How many random examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def example_count(share: float) -> int:
    """Return this share of the usual number of examples, for tests whose examples are slow."""
    return max(2, round(settings().max_examples * share))
