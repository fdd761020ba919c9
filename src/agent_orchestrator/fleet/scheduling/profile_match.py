"""Which profile fits which work: by labels, by the files that it is about, by their languages, and by skills. Pure.

What a profile excludes it never takes. Otherwise one that names labels, paths or languages takes what has any of these; paths and languages
alone keep it only from work whose files a plan names. One that names nothing takes anything. Each label that fits counts 4, paths 3,
languages 2, each skill 1; the most wins, among equals the one with less to do, then the first by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from agent_orchestrator.base.text.globs import covered
from agent_orchestrator.changes.conflicts.merge_order import words
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.fleet.scheduling.languages import language_named, languages_of

LABEL, PATHS, LANGUAGES, SKILL = 4, 3, 2, 1

_WORD = re.compile(r"[a-z0-9+#]{2,}")
_GENERIC = frozenset({"development", "engineering", "programming", "coding", "and", "the", "for", "with"})
"""Words of a skill's name that say nothing of what it is about."""


@dataclass(frozen=True, slots=True)
class Taker:
    """A profile, or a project's own agent, and the work that it takes."""

    name: str
    profile: bool = True
    labels: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    held: bool = False
    """Its account met a usage limit: whoever else fits goes first."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is known of a task that somebody is to take."""

    labels: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    """Those that it is about, as far as known."""
    planned: bool = False
    """They are all that it is about, by its plan; otherwise its text names them, and there may be others."""
    title: str = ""
    profile: str | None = None
    """Who is to take it by its plan."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How well work and profile fit, and by what."""

    points: int
    why: str
    named: bool
    """By something that the profile names, and not because it takes anything."""


def work_of(issue: Issue) -> Work:
    """What an issue says of itself, and its plan of it; where the plan names no files, those of its text count."""
    planned = issue.planned
    profile = planned.profile if planned else None
    if planned and planned.files:
        return Work(issue.labels, frozenset(planned.files), True, issue.title, profile)
    return Work(issue.labels, _named(issue.title, issue.body), False, issue.title, profile)


@lru_cache(maxsize=4096)
def _named(title: str, body: str) -> frozenset[str]:
    return frozenset(word for word in words(f"{title}\n{body}") if "://" not in word)


@lru_cache(maxsize=16384)
def match(taker: Taker, work: Work) -> Fit | None:
    """How well work fits; none: it is not for him."""
    if _excludes(taker, work):
        return None
    there = {label.casefold() for label in work.labels}
    labels = [label for label in taker.labels if label.casefold() in there]
    paths = [pattern for pattern in taker.paths if covered([pattern], work.files)]
    spoken = {language for path in work.files for language in languages_of(path)} if taker.languages else set()
    languages = [language for language in taker.languages if language_named(language) in spoken]
    named = bool(labels or paths or languages)
    if not named and (taker.labels or (work.planned and (taker.paths or taker.languages))):
        return None
    skills = _skills(taker.skills, there, work.title)
    points = LABEL * len(labels) + PATHS * bool(paths) + LANGUAGES * bool(languages) + SKILL * len(skills)
    found = {"labels": labels, "paths": paths, "languages": languages, "skills": skills}
    why = "; ".join(f"{name} {', '.join(values)}" for name, values in found.items() if values)
    return Fit(points, why or "it takes any work", named)


def _skills(skills: Iterable[str], labels: Iterable[str], title: str) -> list[str]:
    """Those whose name, or a word of it that says something, is a label or in the title."""
    spoken = {word for text in (*labels, title) for word in _WORD.findall(text.casefold())}
    return [skill for skill in skills if (set(_WORD.findall(skill.casefold())) - _GENERIC) & spoken]


def choose(takers: Iterable[Taker], work: Work, load: Mapping[str, int]) -> tuple[Taker, Fit] | None:
    """The one that the plan names, unless it excludes such work; else the best match among those whose account is free."""
    found = []
    for taker in takers:
        if taker.profile and taker.name == work.profile and not _excludes(taker, work):
            return taker, Fit(0, "its plan names it", True)
        if (fit := match(taker, work)) is not None:
            found.append((taker.held, -fit.points, load.get(taker.name, 0), taker.name, taker, fit))
    return min(found, key=lambda one: one[:4])[4:] if found else None


def _excludes(taker: Taker, work: Work) -> bool:
    excluded = {label.casefold() for label in taker.excluded}
    return any(label.casefold() in excluded for label in work.labels)
