"""Finding a session by name, and by id without reading the other sessions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.sessions.sessions import Sessions


def session(project: str, name: str, *, stopped: bool = False, id: str = "") -> SimpleNamespace:  # noqa: A002
    return SimpleNamespace(id=id or f"{project}-{name}", name=name, project=project, stopped=stopped)


class CountingSessions(dict[str, SimpleNamespace]):
    scans = 0

    def values(self) -> Any:
        self.scans += 1
        return super().values()


ALL = (
    session("app", "store"),
    session("app", "story"),
    session("web", "store"),
    session("app", "old", stopped=True),
    session("app", "store-2", id="app-old-2"),
)


def find_id(name: str, project: str | None = None, only: str | None = None) -> str:
    flow = SimpleNamespace(sessions=CountingSessions({item.id: item for item in ALL}))
    return Sessions.find(cast("Sessions", SimpleNamespace(flow=flow)), name, project, only).id


@pytest.mark.parametrize(
    ("name", "project", "expected"),
    [
        ("app-store", None, "app-store"),
        ("app-store", "web", "app-store"),
        ("web-store", "app", "web-store"),
        ("store", "web", "web-store"),
        ("story", None, "app-story"),
        ("sto", "web", "web-store"),
        ("web", None, "web-store"),
        ("old", None, "app-old"),
        ("app-old", None, "app-old"),
        ("app-old-", None, "app-old-2"),
        ("app-store-2", None, "app-old-2"),
    ],
)
def test_a_name_or_prefix_finds_its_session(name: str, project: str | None, expected: str) -> None:
    assert find_id(name, project) == expected


def test_an_ambiguous_name_is_refused_with_the_matches() -> None:
    with pytest.raises(UsageError, match="store may be app-store, web-store"):
        find_id("store")


@pytest.mark.parametrize("name", ["app-store", "story", "sto"])
def test_sessions_of_other_projects_are_hidden_from_a_restricted_caller(name: str) -> None:
    if name == "sto":
        assert find_id(name, only="web") == "web-store"
    else:
        with pytest.raises(NotFound, match=f"no session {name}"):
            find_id(name, only="web")


def test_a_session_is_found_by_id_without_a_scan() -> None:
    sessions = CountingSessions({item.id: item for item in ALL})
    service = cast("Sessions", SimpleNamespace(flow=SimpleNamespace(sessions=sessions)))
    assert Sessions.find(service, "app-story").id == "app-story"
    assert sessions.scans == 0
