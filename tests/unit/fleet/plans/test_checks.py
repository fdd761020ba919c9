"""Validation of plans: faults that make a plan unusable, and notes for its reader."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core.plans import PlannedTask, task_from_json
from agent_orchestrator.fleet.plans.validation import (
    MAX_OVERLAP_NOTES,
    PlanContext,
    all_predecessors,
    check_plan,
    extract_json,
    find_cycle,
    sort_by_dependencies,
    stages,
)

CONTEXT = PlanContext(
    max_tasks=5, profiles=frozenset({"frontend"}), issues={3: "Style the page", 4: "Serve it"}, prerequisites={4: (3,)}
)


def task_data(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "title": f"Do {name}", **more}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("no", "it has no list `tasks`"),
        ({"tasks": {}}, "it has no list `tasks`"),
        ([], "it has no task"),
        ([task_data(str(number)) for number in range(6)], "it has 6 tasks, and 5 at most"),
        ([3], "task 1 is no object"),
        ([task_data(""), task_data("x y")], "task 1 has the id ''"),
        ([task_data("x" * 33)], "32 at most"),
        ([task_data(), task_data()], "two tasks have the id a"),
        ([task_data(title="")], "task a has no title"),
        ([task_data(title=3)], "title is no text"),
        ([task_data(title="x" * 201)], "title has 201 characters"),
        ([task_data(effort="huge")], "effort is 'huge', not one of small, medium, large"),
        ([task_data(priority="high")], "priority is no whole number"),
        ([task_data(priority=True)], "priority is no whole number"),
        ([task_data(priority=1001)], "priority is no whole number of at most 1000"),
        ([task_data(files=[{}])], "files is no list of texts"),
        ([task_data(labels=["x"] * 3 + [f"l{n}" for n in range(60)])], "labels is too long"),
        ([task_data(dependencies=["a"])], "task a depends on itself"),
        ([task_data(dependencies=["z"])], "task a depends on z, and there is no such task"),
        ([task_data(issue=9)], "there is no open issue 9"),
        ([task_data(issue=3), task_data("b", issue=3)], "two tasks are issue 3"),
        (
            [task_data(dependencies=["b"]), task_data("b", dependencies=["c"]), task_data("c", dependencies=["a"])],
            "a → b → c → a",
        ),
        ([task_data(issue=3, dependencies=["b"]), task_data("b", issue=4)], "a → b → a"),
    ],
)
def test_every_fault_of_a_plan_is_named(answer: Any, fault: str) -> None:
    assert fault in "; ".join(check_plan(answer, CONTEXT).faults)


def test_a_valid_plan_is_normalized() -> None:
    raw_task = task_data(
        acceptance="all of it",
        dependencies=[],
        effort="Large",
        labels=["ui", "ui"],
        files=["./a.py"],
        profile="frontend",
    )
    checked = check_plan({"tasks": [raw_task], "notes": ["  by\tme "]}, CONTEXT)
    assert checked.faults == () and checked.notes == ("by me",)
    [task] = checked.tasks
    assert (task.acceptance, task.effort, task.labels, task.files) == (("all of it",), "large", ("ui",), ("a.py",))
    assert task_from_json(json.loads(json.dumps(task.to_json()))) == task


def test_notes_name_doubtful_parts_of_a_plan() -> None:
    tasks = [
        task_data(files=["src/*.py", "docs"], profile="nobody"),
        task_data("b", files=["src/x.py", "/etc/passwd"], dependencies=["a"]),
        task_data("c", files=["docs/index.md", "src/x.py"], title="style the PAGE."),
        task_data("d", title="Serve it", issue=4),
    ]
    notes = check_plan(tasks, CONTEXT).notes
    assert "task a: there is no profile nobody; whoever fits takes it" in notes
    assert "task b: /etc/passwd is no path inside the repository, and was left out" in notes
    assert "a and c may run at once, and both change src/*.py, docs" in notes
    assert "b and c may run at once, and both change src/x.py" in notes
    assert "c looks like issue 3, which is open: write issue: 3 if it is the same" in notes
    assert not any(note.startswith(("a and b", "d looks")) for note in notes)


def test_control_characters_are_removed() -> None:
    [task] = check_plan([task_data(title="x\x1b[31m\u202ey", description="a\r\nb\x00")], CONTEXT).tasks
    assert (task.title, task.description) == ("x[31my", "a\nb")


def test_many_faults_are_cut() -> None:
    checked = check_plan([task_data(f"t{n}", dependencies=[f"x{m}" for m in range(10)]) for n in range(5)], CONTEXT)
    assert len(checked.faults) == 21 and checked.faults[-1] == "and 30 more like these"


@pytest.mark.parametrize(
    "text",
    [
        '{"tasks": []}',
        'I made it:\n```json\n{"tasks": 1}\n```\nor better\n```json\n{"tasks": []}\n```\n',
        'Here it is: {"tasks": []} as you wanted.',
        '```\n{"tasks": []}\n```',
    ],
)
def test_json_is_found_in_an_answer(text: str) -> None:
    assert extract_json(text) == {"tasks": []}


@pytest.mark.parametrize("text", ["", "no", "{", "3", '"x"', "[" * 100_000])
def test_an_answer_without_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        extract_json(text)


def test_an_answer_full_of_fences_is_parsed_quickly() -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="no JSON"):
        extract_json("x```\n" * 40_000 + "```json\n" * 40_000)
    assert time.process_time() - begun < 1.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
TASK = st.dictionaries(st.sampled_from(list(PlannedTask.__dataclass_fields__)), JSON, max_size=11)


@given(JSON | st.fixed_dictionaries({"tasks": st.lists(TASK, max_size=6)}))
def test_any_answer_has_faults_or_tasks(answer: Any) -> None:
    checked = check_plan(answer, CONTEXT)
    assert checked.faults or checked.tasks


EDGES = st.integers(1, 8).flatmap(
    lambda count: st.lists(st.sets(st.integers(0, count - 1)), min_size=count, max_size=count)
)


@given(EDGES)
def test_order_stages_and_cycles_agree(edges: list[set[int]]) -> None:
    tasks = [
        PlannedTask(f"t{n}", "x", dependencies=tuple(f"t{m}" for m in sorted(some))) for n, some in enumerate(edges)
    ]
    found_cycle = find_cycle({task.id: task.dependencies for task in tasks})
    place = {task.id: at for at, task in enumerate(sort_by_dependencies(tasks))}
    respected = all(place[name] < place[task.id] for task in tasks for name in task.dependencies)
    assert respected == (not found_cycle)
    if found_cycle:
        deps = {task.id: task.dependencies for task in tasks}
        assert found_cycle[0] == found_cycle[-1] and all(after in deps[name] for name, after in pairwise(found_cycle))
        return
    at = {name: level for level, names in enumerate(stages(tasks)) for name in names}
    assert all(at[name] < at[task.id] for task in tasks for name in task.dependencies)
    ahead = all_predecessors(tasks)
    assert all(ahead[name] < ahead[task.id] for task in tasks for name in task.dependencies)


def test_too_many_file_patterns_are_noted_quickly() -> None:
    tasks = [
        {"id": f"t{place}", "title": f"task {place}", "files": [f"*{place}_{n}*{'a*' * 100}b" for n in range(50)]}
        for place in range(20)
    ]
    begun = time.process_time()
    checked = check_plan({"tasks": tasks}, PlanContext())
    assert time.process_time() - begun < 2.0
    assert checked.notes == ("it has too many patterns of files for a look at which of them meet",)


def test_the_number_of_notes_about_one_file_is_limited() -> None:
    tasks = [{"id": f"t{place}", "title": f"task {place}", "files": ["a.py"]} for place in range(50)]
    notes = check_plan({"tasks": tasks}, PlanContext(max_tasks=50)).notes
    assert len(notes) == MAX_OVERLAP_NOTES + 1 and notes[-1] == "more of them may change the same files"
