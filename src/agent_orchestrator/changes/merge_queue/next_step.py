"""What is next for changes that are to land on one branch, one on top of the other. Pure: told what is known, it says what to do.

Who collides with few others goes before who collides with many, so that one is sent back and not many; but what is built and being
checked keeps its place, and nobody is passed by those who asked much later.

Every entry is built on the entry ahead of it and checked at that very tree, all of them side by side. So an entry that fails on
a chain that passes is at fault itself, and nobody has to search: it goes, and those behind it are built without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agent_orchestrator.changes.merge.model import Built, Conflicted

TOGETHER = 600.0
"""Seconds: within each such span one may go before another that asked earlier, but nobody before one of an earlier span."""

Verdict = Literal["running", "doubtful", "good", "bad"]
"""`doubtful`: it failed once, and is tried again."""
State = Literal["queued", "checking", "doubtful", "green", "failing", "clashing", "conflict", "culprit"]
"""`queued`: not built, or not checked yet. `failing`: it fails, but so may what is ahead. `clashing`: it conflicts with those ahead, and
waits for them. `conflict`: it conflicts with the base. `culprit`: it fails on what passes. The last two are out of the queue."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A change that is to land."""

    session: str
    head: str
    priority: int
    asked: float
    unchecked: bool = False
    """It needs no check: forced, or there is none."""


Builds = Mapping[tuple[Entry, str], Built | Conflicted]
"""By entry, and the commit that it was built upon."""


@dataclass(frozen=True, slots=True)
class Place:
    """An entry in the queue."""

    entry: Entry
    state: State
    on: str
    """The commit that it is, or is to be, built upon."""
    ahead: tuple[str, ...]
    """The sessions between the base and it."""
    built: Built | Conflicted | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. Whatever is done, a new plan is made."""

    places: tuple[Place, ...] = ()
    """Everybody, in order."""
    build: tuple[Entry, str] | None = None
    land: Place | None = None

    @property
    def checks(self) -> dict[str, Place]:
        """What is to be under check, by commit."""
        return {
            place.built.commit: place
            for place in self.places
            if isinstance(place.built, Built) and place.state in ("checking", "doubtful")
        }

    @property
    def begun(self) -> list[Entry]:
        """Who is built at its place, or known to clash there."""
        return [place.entry for place in self.places if place.built is not None]

    @property
    def drops(self) -> tuple[Place, ...]:
        """Who is out."""
        return tuple(place for place in self.places if place.state in ("conflict", "culprit"))


@dataclass(frozen=True, slots=True)
class Wishes:
    """What else the order goes by."""

    clashes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Session → those that it is predicted to conflict with."""
    begun: Sequence[Entry] = ()
    """Those that are built upon each other, in their order: to part them would throw away what is known of them."""


NONE = Wishes()


def order(entries: Iterable[Entry], wishes: Wishes = NONE) -> list[Entry]:
    """Higher priority first; then those that are under way as they are; then who collides with the fewest; then who asked first."""
    there = list(entries)
    sessions = {entry.session for entry in there}
    begun = {entry: place for place, entry in enumerate(wishes.begun)}

    def rank(entry: Entry) -> tuple[int, int, float, int, float, str]:
        meets = len(wishes.clashes.get(entry.session, frozenset()) & sessions)
        place = begun.get(entry, len(begun))
        return -entry.priority, place, entry.asked // TOGETHER, meets, entry.asked, entry.session

    return sorted(there, key=rank)


def passed_by(entry: Entry, ordered: Sequence[Entry]) -> list[str]:
    """The sessions that go before one although they asked later and are no more urgent."""
    before = ordered[: ordered.index(entry)]
    return [one.session for one in before if one.priority == entry.priority and one.asked > entry.asked]


def plan(
    entries: Iterable[Entry],
    base: str,
    builds: Builds,
    verdicts: Mapping[str, Verdict],
    room: int,
    wishes: Wishes = NONE,
) -> Plan:
    """What to do for these entries on this base; at most `room` of them are checked at a time."""
    walk = _Walk(base, builds, verdicts, room)
    places = tuple(walk.place(entry) for entry in order(entries, wishes))
    return Plan(places, walk.build, walk.land)


class _Walk:
    """From the base along the chain."""

    def __init__(self, base: str, builds: Builds, verdicts: Mapping[str, Verdict], room: int) -> None:
        self._base = base
        self._builds = builds
        self._verdicts = verdicts
        self._room = room
        self._tip = base
        self._ahead: tuple[str, ...] = ()
        self._sure = True
        """Everything in the chain so far passes."""
        self._undecided = False
        """Somebody ahead failed once: whether he lands first is not known yet."""
        self._stopped = False
        self.build: tuple[Entry, str] | None = None
        self.land: Place | None = None

    def place(self, entry: Entry) -> Place:
        found = None if self._stopped else self._builds.get((entry, self._tip))
        place = Place(entry, "queued", self._tip, self._ahead, found)
        if found is None:
            self._want(entry, self._tip)
            self._stopped = True
            return place
        return self._clash(place) if isinstance(found, Conflicted) else self._merged(place, found)

    def _want(self, entry: Entry, on: str) -> None:
        if self.build is None and not self._stopped and self._room > 0:
            self.build = (entry, on)

    def _clash(self, place: Place) -> Place:
        """It conflicts: with the base, or with somebody between."""
        alone = self._builds.get((place.entry, self._base))
        if alone is None:
            self._want(place.entry, self._base)
            return replace(place, state="clashing")
        if isinstance(alone, Conflicted):
            return replace(place, state="conflict", on=self._base, ahead=(), built=alone)
        return replace(place, state="clashing")

    def _merged(self, place: Place, built: Built) -> Place:
        match "good" if place.entry.unchecked or built.up_to_date else self._verdicts.get(built.commit):
            case "good":
                place = replace(place, state="green")
                if self._tip == self._base and not self._undecided and self.land is None:
                    self.land = place
                self._chain(place.entry, built)
            case "bad":
                place = replace(place, state="culprit" if self._sure else "failing")
            case "doubtful":
                place = replace(place, state="doubtful")
                self._room -= 1
                self._undecided = True
            case verdict:
                if verdict == "running" or self._room > 0:
                    place = replace(place, state="checking")
                self._room -= 1
                self._sure = False
                self._chain(place.entry, built)
        return place

    def _chain(self, entry: Entry, built: Built) -> None:
        self._tip = built.commit
        self._ahead = (*self._ahead, entry.session)
