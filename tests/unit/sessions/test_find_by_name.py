"""Which session is meant by a name, and that an id is found without a look at the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.sessions.sessions import Sessions


def session(project: str, name: str, *, stopped: bool = False, id: str = "") -> SimpleNamespace:  # noqa: A002
    return SimpleNamespace(id=id or f"{project}-{name}", name=name, project=project, stopped=stopped)


class Counted(dict[str, SimpleNamespace]):
    looks = 0

    def values(self) -> Any:
        self.looks += 1
        return super().values()


ALL = (
    session("app", "store"),
    session("app", "story"),
    session("web", "store"),
    session("app", "old", stopped=True),
    session("app", "store-2", id="app-old-2"),
)


def found(name: str, project: str | None = None, only: str | None = None) -> str:
    flow = SimpleNamespace(sessions=Counted({one.id: one for one in ALL}))
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
def test_whom_a_name_means(name: str, project: str | None, expected: str) -> None:
    assert found(name, project) == expected


def test_a_name_that_may_mean_several_is_refused_with_these() -> None:
    with pytest.raises(UsageError, match="store may be app-store, web-store"):
        found("store")


@pytest.mark.parametrize("name", ["app-store", "story", "sto"])
def test_sessions_of_other_projects_are_not_there_for_one_who_sees_but_his_own(name: str) -> None:
    if name == "sto":
        assert found(name, only="web") == "web-store"
    else:
        with pytest.raises(NotFound, match=f"no session {name}"):
            found(name, only="web")


def test_an_id_is_found_without_a_look_at_the_others() -> None:
    sessions = Counted({one.id: one for one in ALL})
    by = cast("Sessions", SimpleNamespace(flow=SimpleNamespace(sessions=sessions)))
    assert Sessions.find(by, "app-story").id == "app-story"
    assert sessions.looks == 0
