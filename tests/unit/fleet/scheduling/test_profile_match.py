"""Matching of profiles to work: labels, paths, languages, skills and plans."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base.text.globs import is_glob, matches, matching_paths
from agent_orchestrator.core.issues import Issue, PlanEntry
from agent_orchestrator.fleet.scheduling.languages import language_named, languages_of
from agent_orchestrator.fleet.scheduling.profile_match import (
    LABEL_POINTS,
    IssueTaker,
    TaskTraits,
    choose_taker,
    match_taker,
    task_traits,
)

FRONT = IssueTaker("front", labels=("ui", "css"), excluded_labels=("api",))
BACK = IssueTaker("back", labels=("api", "db"))
ANY = IssueTaker("any")
TAKERS = (FRONT, BACK, ANY)
PYTHON = IssueTaker("python", languages=("Python",))
PAGES = IssueTaker("pages", labels=("ui",), paths=("src/ui/**", "*.css"))


@pytest.mark.parametrize(
    ("labels", "load", "name"),
    [
        ((), {}, "any"),
        (("ui",), {}, "front"),
        (("UI", "css"), {}, "front"),
        (("ui", "api"), {}, "back"),
        (("docs",), {}, "any"),
        (("ui", "db"), {}, "back"),
        (("ui", "db"), {"back": 2, "front": 1}, "front"),
        (("ui", "css", "db"), {"front": 9}, "front"),
    ],
)
def test_the_best_match_is_chosen(labels: tuple[str, ...], load: dict[str, int], name: str) -> None:
    chosen = choose_taker(TAKERS, TaskTraits(labels), load)
    assert chosen is not None and chosen[0].name == name
    assert choose_taker(reversed(TAKERS), TaskTraits(labels), load) == chosen


@given(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_excluded_labels_prevent_and_required_labels_are_needed(
    labels: set[str], required: set[str], excluded: set[str]
) -> None:
    fit = match_taker(
        IssueTaker("x", labels=tuple(required), excluded_labels=tuple(excluded)), TaskTraits(tuple(labels))
    )
    if excluded & labels or (required and not required & labels):
        assert fit is None
    else:
        assert (
            fit is not None
            and fit.points == LABEL_POINTS * len(required & labels)
            and fit.is_explicit == bool(required & labels)
        )


def files(*paths: str, planned: bool = False, labels: tuple[str, ...] = (), title: str = "") -> TaskTraits:
    return TaskTraits(labels, frozenset(paths), planned, title)


def why(taker: IssueTaker, work: TaskTraits) -> str | None:
    fit = match_taker(taker, work)
    return fit.why if fit else None


def test_files_and_languages_count_like_labels() -> None:
    assert why(PAGES, files("src/ui/a/Button.tsx")) == "paths src/ui/**"
    assert why(PAGES, files("deep/in/x.css", labels=("ui",))) == "labels ui; paths *.css"
    assert why(PAGES, files("src/api.py")) is None
    assert why(PYTHON, files("src/api.py")) == "languages Python"
    best = choose_taker((PYTHON, PAGES, ANY), files("src/ui/a.py"), {})
    assert best is not None and best[0] is PAGES


def test_paths_and_languages_do_not_exclude_work_without_a_plan() -> None:
    assert why(PYTHON, TaskTraits()) == "it takes any work"
    assert why(PYTHON, files("main.go")) == "it takes any work"
    assert why(PYTHON, files("main.go", planned=True)) is None


def test_skills_count_least() -> None:
    react = IssueTaker("react", skills=("react-development", "css-styling"))
    api = IssueTaker("api", skills=("api-development", "database-migrations"))
    assert why(react, TaskTraits(title="The React page is slow")) == "skills react-development"
    assert (
        why(api, TaskTraits(labels=("database",), title="Faster API")) == "skills api-development, database-migrations"
    )
    assert why(react, TaskTraits(title="Some development")) == "it takes any work"
    best = choose_taker((react, PYTHON), files("x.py", title="react and css"), {})
    assert best is not None and best[0].name == "python", "a filter counts more than a skill, among equals the name"


def test_a_plans_profile_is_used_unless_it_excludes_the_work() -> None:
    def planned(profile: str | None, *labels: str) -> TaskTraits:
        issue = Issue(
            1, "app", "t", 1.0, 1.0, labels=labels, plan_entry=PlanEntry("P1", "t1", profile, files=("a.py",))
        )
        return task_traits(issue)

    choice = choose_taker(TAKERS, planned("back", "ui"), {})
    assert choice is not None and (choice[0], choice[1].why) == (BACK, "its plan names it")
    choice = choose_taker(TAKERS, planned("front", "api"), {})
    assert choice is not None and choice[0] is BACK
    choice = choose_taker(TAKERS, planned("nobody", "ui"), {})
    assert choice is not None and choice[0] is FRONT


def test_files_named_in_an_issues_text_are_used() -> None:
    body = "See src/ui/Button.tsx:12 and https://example.com/x.py, e.g. in `api.go`."
    work = task_traits(Issue(1, "app", "Button", 1.0, 1.0, body=body))
    assert {"src/ui/Button.tsx", "api.go"} <= work.files and not any("example.com" in name for name in work.files)
    assert not work.has_planned_files
    assert task_traits(Issue(1, "app", "x.py", 1.0, 1.0, plan_entry=PlanEntry("P1", "t", files=("y.go",)))).files == {
        "y.go"
    }


@pytest.mark.parametrize(
    ("pattern", "path", "holds"),
    [
        ("src/ui/**", "src/ui/a/b.tsx", True),
        ("src/ui/**", "src/ui/**", True),
        ("src/ui/", "src/ui/a.tsx", True),
        ("src/ui", "src/ui/a.tsx", True),
        ("src/ui", "src/uix.ts", False),
        ("*.tsx", "deep/a.tsx", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/*.py", "src/b.py", True),
        ("**/test_*.py", "test_a.py", True),
        ("**/test_*.py", "x/y/test_a.py", True),
        ("src/**/x.py", "src/x.py", True),
        ("a?c.py", "abc.py", True),
        ("a[bd]c.py", "abc.py", True),
        ("a[!b]c.py", "abc.py", False),
        ("a[", "a[", True),
        ("./src/a.py", "src/a.py", True),
        ("a.py", "aXpy", False),
    ],
)
def test_globs_match_paths(pattern: str, path: str, holds: bool) -> None:
    assert matches(pattern, path) is holds


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_pattern_can_be_matched(pattern: str, path: str) -> None:
    assert matching_paths([pattern], [path]) <= {path}


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 15 + "*b", "a" * 60),
        ("**/a/" * 8 + "b", "a/" * 60 + "c"),
        ("a**" * 8 + "b", "a" * 60),
        ("x/" + "*a?" * 12 + "b", "x/" + "a" * 60),
    ],
)
def test_matching_time_is_bounded_for_any_pattern(pattern: str, path: str) -> None:
    begun = time.process_time()
    assert not matches(pattern, path)
    assert time.process_time() - begun < 0.5


def matches_by_search(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name, by trying all possibilities."""
    if not pattern or not name:
        return not name and not pattern.strip("*")
    if pattern[0] == "*":
        return matches_by_search(pattern[1:], name) or matches_by_search(pattern, name[1:])
    return pattern[0] in ("?", name[0]) and matches_by_search(pattern[1:], name[1:])


@given(st.lists(st.text("ab*?", min_size=1, max_size=5), min_size=2, max_size=3), st.text("ab/", max_size=10))
def test_globs_agree_with_an_exhaustive_search(pattern: list[str], path: str) -> None:
    names, parts = path.split("/"), [re.sub(r"\*+", "*", part) for part in pattern]
    fits = len(names) >= len(parts) and all(map(matches_by_search, parts, names))
    assert matches("/".join(parts), path) is fits


def test_only_the_first_twenty_stars_of_a_pattern_count() -> None:
    assert matches("a*" * 20 + "b", "a" * 20 + "c") and not matches("a*" * 19 + "b", "a" * 20 + "c")


@pytest.mark.parametrize("pattern", ["", "/", "./", "[z-a]", "[]", "[!]", "[a--]", "[[:x]"])
def test_invalid_patterns_match_only_themselves(pattern: str) -> None:
    assert not matches(pattern, "b.py")


def test_globs_are_recognized() -> None:
    assert [pattern for pattern in ("a.py", "src/*", "src/", "x?.py", "a[b]") if is_glob(pattern)] == [
        "src/*",
        "src/",
        "x?.py",
        "a[b]",
    ]


def test_languages_are_recognized_by_file_name() -> None:
    assert languages_of("a/b.py") == {"python"} and languages_of("x.h") == {"c", "c++"}
    assert languages_of("deploy/Dockerfile") == {"docker"} and languages_of("LICENSE") == frozenset()
    assert (language_named(" TS "), language_named("Rust")) == ("typescript", "rust")
