"""What is wrong with a plan: faults that make it unusable, and notes for whoever reads it."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core.plans import PlannedTask, task_of
from agent_orchestrator.fleet.plans.validation import (
    MOST_OVERLAPS,
    PlanContext,
    all_predecessors,
    check,
    cycle,
    in_order,
    json_in,
    stages,
)

KNOWN = PlanContext(
    most=5, profiles=frozenset({"frontend"}), issues={3: "Style the page", 4: "Serve it"}, after={4: (3,)}
)


def one(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "title": f"Do {name}", **more}


@pytest.mark.parametrize(
    ("given_", "fault"),
    [
        ("no", "it has no list `tasks`"),
        ({"tasks": {}}, "it has no list `tasks`"),
        ([], "it has no task"),
        ([one(str(number)) for number in range(6)], "it has 6 tasks, and 5 at most"),
        ([3], "task 1 is no object"),
        ([one(""), one("x y")], "task 1 has the id ''"),
        ([one("x" * 33)], "32 at most"),
        ([one(), one()], "two tasks have the id a"),
        ([one(title="")], "task a has no title"),
        ([one(title=3)], "title is no text"),
        ([one(title="x" * 201)], "title has 201 characters"),
        ([one(effort="huge")], "effort is 'huge', not one of small, medium, large"),
        ([one(priority="high")], "priority is no whole number"),
        ([one(priority=True)], "priority is no whole number"),
        ([one(priority=1001)], "priority is no whole number of at most 1000"),
        ([one(files=[{}])], "files is no list of texts"),
        ([one(labels=["x"] * 3 + [f"l{n}" for n in range(60)])], "labels is too long"),
        ([one(dependencies=["a"])], "task a depends on itself"),
        ([one(dependencies=["z"])], "task a depends on z, and there is no such task"),
        ([one(issue=9)], "there is no open issue 9"),
        ([one(issue=3), one("b", issue=3)], "two tasks are issue 3"),
        ([one(dependencies=["b"]), one("b", dependencies=["c"]), one("c", dependencies=["a"])], "a → b → c → a"),
        ([one(issue=3, dependencies=["b"]), one("b", issue=4)], "a → b → a"),
    ],
)
def test_faults(given_: Any, fault: str) -> None:
    assert fault in "; ".join(check(given_, KNOWN).faults)


def test_a_good_plan_is_taken_as_it_is_meant() -> None:
    given_ = one(
        acceptance="all of it",
        dependencies=[],
        effort="Large",
        labels=["ui", "ui"],
        files=["./a.py"],
        profile="frontend",
    )
    found = check({"tasks": [given_], "notes": ["  by\tme "]}, KNOWN)
    assert found.faults == () and found.notes == ("by me",)
    [task] = found.tasks
    assert (task.acceptance, task.effort, task.labels, task.files) == (("all of it",), "large", ("ui",), ("a.py",))
    assert task_of(json.loads(json.dumps(task.data()))) == task


def test_notes() -> None:
    tasks = [
        one(files=["src/*.py", "docs"], profile="nobody"),
        one("b", files=["src/x.py", "/etc/passwd"], dependencies=["a"]),
        one("c", files=["docs/index.md", "src/x.py"], title="style the PAGE."),
        one("d", title="Serve it", issue=4),
    ]
    notes = check(tasks, KNOWN).notes
    assert "task a: there is no profile nobody; whoever fits takes it" in notes
    assert "task b: /etc/passwd is no path inside the repository, and was left out" in notes
    assert "a and c may run at once, and both change src/*.py, docs" in notes
    assert "b and c may run at once, and both change src/x.py" in notes
    assert "c looks like issue 3, which is open: write issue: 3 if it is the same" in notes
    assert not any(note.startswith(("a and b", "d looks")) for note in notes)


def test_control_characters_go() -> None:
    [task] = check([one(title="x\x1b[31m\u202ey", description="a\r\nb\x00")], KNOWN).tasks
    assert (task.title, task.description) == ("x[31my", "a\nb")


def test_many_faults_are_cut() -> None:
    found = check([one(f"t{n}", dependencies=[f"x{m}" for m in range(10)]) for n in range(5)], KNOWN)
    assert len(found.faults) == 21 and found.faults[-1] == "and 30 more like these"


@pytest.mark.parametrize(
    "text",
    [
        '{"tasks": []}',
        'I made it:\n```json\n{"tasks": 1}\n```\nor better\n```json\n{"tasks": []}\n```\n',
        'Here it is: {"tasks": []} as you wanted.',
        '```\n{"tasks": []}\n```',
    ],
)
def test_json_is_found(text: str) -> None:
    assert json_in(text) == {"tasks": []}


@pytest.mark.parametrize("text", ["", "no", "{", "3", '"x"', "[" * 100_000])
def test_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        json_in(text)


def test_an_answer_full_of_fences_is_read_in_no_time() -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="no JSON"):
        json_in("x```\n" * 40_000 + "```json\n" * 40_000)
    assert time.process_time() - begun < 1.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
TASK = st.dictionaries(st.sampled_from(list(PlannedTask.__dataclass_fields__)), JSON, max_size=11)


@given(JSON | st.fixed_dictionaries({"tasks": st.lists(TASK, max_size=6)}))
def test_whatever_is_answered_is_judged(answer: Any) -> None:
    found = check(answer, KNOWN)
    assert found.faults or found.tasks


EDGES = st.integers(1, 8).flatmap(
    lambda count: st.lists(st.sets(st.integers(0, count - 1)), min_size=count, max_size=count)
)


@given(EDGES)
def test_order_layers_and_circles_agree(edges: list[set[int]]) -> None:
    tasks = [
        PlannedTask(f"t{n}", "x", dependencies=tuple(f"t{m}" for m in sorted(some))) for n, some in enumerate(edges)
    ]
    way = cycle({task.id: task.dependencies for task in tasks})
    place = {task.id: at for at, task in enumerate(in_order(tasks))}
    respected = all(place[name] < place[task.id] for task in tasks for name in task.dependencies)
    assert respected == (not way)
    if way:
        deps = {task.id: task.dependencies for task in tasks}
        assert way[0] == way[-1] and all(after in deps[name] for name, after in pairwise(way))
        return
    at = {name: level for level, names in enumerate(stages(tasks)) for name in names}
    assert all(at[name] < at[task.id] for task in tasks for name in task.dependencies)
    ahead = all_predecessors(tasks)
    assert all(ahead[name] < ahead[task.id] for task in tasks for name in task.dependencies)


def test_a_plan_with_more_patterns_than_can_be_compared_says_so_at_once() -> None:
    tasks = [
        {"id": f"t{place}", "title": f"task {place}", "files": [f"*{place}_{n}*{'a*' * 100}b" for n in range(50)]}
        for place in range(20)
    ]
    begun = time.process_time()
    found = check({"tasks": tasks}, PlanContext())
    assert time.process_time() - begun < 2.0
    assert found.notes == ("it has too many patterns of files for a look at which of them meet",)


def test_of_very_many_tasks_at_one_file_some_are_named() -> None:
    tasks = [{"id": f"t{place}", "title": f"task {place}", "files": ["a.py"]} for place in range(50)]
    notes = check({"tasks": tasks}, PlanContext(most=50)).notes
    assert len(notes) == MOST_OVERLAPS + 1 and notes[-1] == "more of them may change the same files"
