"""Match profiles and issues: by labels, by the files that the work is about, by their languages, and by skills. Pure.

Look here if an issue goes to the wrong profile.

A profile never takes what it excludes. Otherwise a profile that names labels, paths or languages takes work that matches any of them; if it
names paths or languages but no labels, it also takes other work, unless a plan names that work's files. A profile that names none of these
takes any work.
Each matching label counts 4, matching paths 3, a language 2, a skill 1; the highest sum wins, then the agent with the fewest unfinished
sessions, then the first by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from agent_orchestrator.base.text.globs import matching_paths
from agent_orchestrator.changes.conflicts.named_files import path_words
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.fleet.scheduling.languages import language_named, languages_of

LABEL_POINTS, PATHS_POINTS, LANGUAGES_POINTS, SKILL_POINTS = 4, 3, 2, 1

_WORD = re.compile(r"[a-z0-9+#]{2,}")
_GENERIC_WORDS = frozenset({"development", "engineering", "programming", "coding", "and", "the", "for", "with"})
"""Words of a skill's name that do not say what it is about."""


@dataclass(frozen=True, slots=True)
class IssueTaker:
    """A profile, or a project's own agent, and the work that it takes."""

    name: str
    is_profile: bool = True
    labels: tuple[str, ...] = ()
    excluded_labels: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    has_held_account: bool = False
    """Its account has reached a usage limit: any other agent that fits goes first."""


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """What is known of a task that is to be assigned."""

    labels: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    """The files that it is about, as far as known."""
    has_planned_files: bool = False
    """The files come from a plan and are complete; otherwise they come from its text, and there may be others."""
    title: str = ""
    profile: str | None = None
    """The profile that its plan names."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How well an agent fits some work, and why."""

    points: int
    why: str
    is_explicit: bool
    """It matches something that the profile names, not only because the profile takes any work."""


def task_traits(issue: Issue) -> TaskTraits:
    """Return what an issue and its plan say about the work; if the plan names no files, those in the issue's text count."""
    planned = issue.plan_entry
    profile = planned.profile if planned else None
    if planned and planned.files:
        return TaskTraits(issue.labels, frozenset(planned.files), True, issue.title, profile)
    return TaskTraits(issue.labels, _mentioned_paths(issue.title, issue.body), False, issue.title, profile)


@lru_cache(maxsize=4096)
def _mentioned_paths(title: str, body: str) -> frozenset[str]:
    """Return the words of a text that may be paths, without URLs."""
    return frozenset(word for word in path_words(f"{title}\n{body}") if "://" not in word)


@lru_cache(maxsize=16384)
def match_taker(taker: IssueTaker, work: TaskTraits) -> Fit | None:
    """Return how well an agent fits some work, or None if it does not take it."""
    if _excludes(taker, work):
        return None
    work_labels = {label.casefold() for label in work.labels}
    labels = [label for label in taker.labels if label.casefold() in work_labels]
    paths = [pattern for pattern in taker.paths if matching_paths([pattern], work.files)]
    work_languages = {language for path in work.files for language in languages_of(path)} if taker.languages else set()
    languages = [language for language in taker.languages if language_named(language) in work_languages]
    has_explicit_match = bool(labels or paths or languages)
    if not has_explicit_match and (taker.labels or (work.has_planned_files and (taker.paths or taker.languages))):
        return None
    skills = _matching_skills(taker.skills, work_labels, work.title)
    points = (
        LABEL_POINTS * len(labels)
        + PATHS_POINTS * bool(paths)
        + LANGUAGES_POINTS * bool(languages)
        + SKILL_POINTS * len(skills)
    )
    matches = {"labels": labels, "paths": paths, "languages": languages, "skills": skills}
    reason = "; ".join(f"{name} {', '.join(values)}" for name, values in matches.items() if values)
    return Fit(points, reason or "it takes any work", has_explicit_match)


def _matching_skills(skills: Iterable[str], labels: Iterable[str], title: str) -> list[str]:
    """Return the skills of which a word, other than a generic one, is in a label or the title."""
    work_words = {word for text in (*labels, title) for word in _WORD.findall(text.casefold())}
    return [skill for skill in skills if (set(_WORD.findall(skill.casefold())) - _GENERIC_WORDS) & work_words]


def choose_taker(
    takers: Iterable[IssueTaker], work: TaskTraits, load: Mapping[str, int]
) -> tuple[IssueTaker, Fit] | None:
    """Return the best agent and its fit, or None if none fits.

    That is the profile that the plan names, unless it excludes the work; else the best match, first among agents with a free account.
    """
    candidates = []
    for taker in takers:
        if taker.is_profile and taker.name == work.profile and not _excludes(taker, work):
            return taker, Fit(0, "its plan names it", True)
        if (fit := match_taker(taker, work)) is not None:
            candidates.append((taker.has_held_account, -fit.points, load.get(taker.name, 0), taker.name, taker, fit))
    return min(candidates, key=lambda candidate: candidate[:4])[4:] if candidates else None


def _excludes(taker: IssueTaker, work: TaskTraits) -> bool:
    """Return whether a label of the work is one that the agent excludes."""
    excluded = {label.casefold() for label in taker.excluded_labels}
    return any(label.casefold() in excluded for label in work.labels)
