"""The pure parts of conflict prediction: merge bases, candidate files, pacing and changed predictions."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from agent_orchestrator.changes.conflicts import ConflictingPair, find_named_files, text_conflicts
from agent_orchestrator.changes.conflicts.hunks import ChangedSection, overlaps, parse_sections
from agent_orchestrator.changes.conflicts.merge_bases import Graph, HistoryNode, commit_pair
from agent_orchestrator.changes.conflicts.prediction_schedule import (
    MAX_DELAY_SECONDS,
    PAUSE_FACTOR,
    QUIET_SECONDS,
    PredictionSchedule,
)
from agent_orchestrator.changes.conflicts.predictor import conflict_events
from agent_orchestrator.changes.conflicts.tree_changes import TreeChanges, parse_changes
from agent_orchestrator.core.events import SessionCreated
from agent_orchestrator.core.facts import PredictedConflict, SessionFacts


def _reachable(graph: dict[str, tuple[str, ...]], start: str) -> set[str]:
    reached, ahead = set(), [start]
    while ahead:
        sha = ahead.pop()
        if sha not in reached:
            reached.add(sha)
            ahead += graph[sha]
    return reached


def test_best_common_ancestors_of_random_histories() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        parents: dict[str, tuple[str, ...]] = {}
        for number in range(30):
            existing = list(parents)
            parents[f"c{number:02}"] = tuple(chance.sample(existing, min(len(existing), chance.choice([1, 1, 1, 2]))))
        graph = Graph({sha: HistoryNode(f"t{sha}", parents[sha]) for sha in reversed(parents)})
        heads = chance.sample(list(parents), 8)
        moved = set(chance.sample(heads, 3))
        bases = graph.bases(heads, moved)
        for a, b in combinations(heads, 2):
            common = _reachable(parents, a) & _reachable(parents, b)
            best = {
                sha for sha in common if not any(sha != other and sha in _reachable(parents, other) for other in common)
            }
            if {a, b} & moved:
                assert set(bases.get(commit_pair(a, b), ())) == best, (seed, a, b)


def test_a_branchs_first_parents_are_its_chain() -> None:
    graph = Graph.parse("d td c x\nx tx b\nc tc b\nb tb a")
    assert graph.first_parents("d") == ["b", "c", "d"]
    assert graph.with_newer(Graph.parse("e te d")).first_parents("e")[-1] == "e"
    assert graph.first_parents(None) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([("M", "a.py")], [("M", "a.py")], True),
        ([("M", "a.py")], [("M", "b.py")], False),
        ([("A", "x")], [("A", "x/y")], True),
        ([("D", "d/a.py"), ("A", "e/a.py")], [("A", "d/new.py")], True),
        ([("D", "d/a.py"), ("A", "e/a.py")], [("M", "f/b.py")], False),
        ([("M", "package-lock.json"), ("M", "sub/Cargo.lock")], [("M", "package-lock.json"), ("M", "sub/Cargo.lock")], False),
    ],
)  # fmt: skip
def test_two_changes_may_conflict_if_their_paths_overlap(
    ours: list[tuple[str, str]], theirs: list[tuple[str, str]], expected: bool
) -> None:
    assert TreeChanges.from_entries(ours).can_conflict_with(TreeChanges.from_entries(theirs)) is expected
    assert TreeChanges.from_entries(theirs).can_conflict_with(TreeChanges.from_entries(ours)) is expected


def test_the_output_of_diff_tree_is_parsed() -> None:
    a, b, c = "a" * 40, "b" * 40, "c" * 40
    out = f"{a} {a}\n{a} {b}\nM\0x y\0D\0d/z\0{a} {c}\nA\0q\0{b} {c}\n"
    changes = parse_changes(out)
    assert changes[a, a] == changes[b, c] == TreeChanges()
    assert changes[a, b].paths == {"x y", "d/z"} and changes[a, b].removed_from == {"d", ""}
    assert changes[a, c].added_to == {""}


def _patch(*hunks: str) -> list[ChangedSection]:
    trees = "a" * 40 + " " + "b" * 40
    out = f"{trees}\ndiff --git a/f.py b/f.py\nindex 1..2 100644\n--- a/f.py\n+++ b/f.py\n" + "".join(hunks)
    return parse_sections(out)["a" * 40, "b" * 40]["f.py"]


FIRST = "@@ -10,4 +10,4 @@\n def f():\n-    a\n+    b\n     c\n     d\n"


@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ("@@ -10,4 +10,4 @@\n def f():\n     a\n     c\n-    d\n+    e\n", True),
        ("@@ -14,2 +14,2 @@\n def g():\n-    x\n+    y\n", False),
        ("@@ -12,0 +13 @@\n+    between\n", True),
        ("@@ -30,0 +31,2 @@\n+def h():\n+    new\n", False),
        (FIRST, False),
    ],
)
def test_changes_overlap_in_the_same_function_or_adjacent_lines(theirs: str, same: bool) -> None:
    assert overlaps(_patch(FIRST), _patch(theirs)) is same
    assert overlaps(_patch(theirs), _patch(FIRST)) is same


def test_a_file_without_hunk_headings_has_no_common_section() -> None:
    top = "@@ -1,40 +1,40 @@\n {\n-  1\n+  2\n" + "   x\n" * 38
    end = "@@ -1,40 +1,40 @@\n {\n" + "   x\n" * 38 + "-  1\n+  2\n"
    assert not overlaps(_patch(top), _patch(end))
    assert not overlaps(_patch(top.replace(" {", " import os")), _patch(end.replace(" {", " import os")))
    assert overlaps(_patch(top.replace(" {", " def f():")), _patch(end.replace(" {", " def f():")))


def test_a_deleted_file_has_no_sections() -> None:
    out = f"{'a' * 40} {'b' * 40}\ndiff --git a/f b/f\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert parse_sections(out) == {("a" * 40, "b" * 40): {}}


def test_a_comparison_waits_for_a_pause_but_not_forever() -> None:
    pace = PredictionSchedule()
    assert pace.due_at is None
    pace.record_change(100.0)
    assert pace.due_at == 100.0 + QUIET_SECONDS
    for step in range(50):
        pace.record_change(100.0 + step * 0.5)
    assert pace.due_at == 100.0 + MAX_DELAY_SECONDS
    pace.record_start()
    assert pace.due_at is None
    pace.record_end(110.0, 2.0)
    pace.record_change(110.0)
    assert pace.due_at == 110.0 + 2.0 * PAUSE_FACTOR


def test_only_textual_conflicts_block_a_merge() -> None:
    pairs = [
        ConflictingPair("a", "b", ("x",), "text"),
        ConflictingPair("a", "c", ("x",), "overlap"),
        ConflictingPair("b", "d", ("x",), "text"),
    ]
    assert text_conflicts(pairs) == {"a": {"b"}, "b": {"a", "d"}, "d": {"b"}}
    assert text_conflicts([]) == {}


def test_files_that_a_task_names() -> None:
    files = ["src/app/login.py", "src/app/util.py", "lib/util.py", "README.md", "uv.lock", "a.b/c"]
    text = "Fix `src/app/login.py:12`, ./README.md and util.py (not uv.lock). See a.b/c, v1.2 and nothing/else.py."
    assert find_named_files(text, files) == {"src/app/login.py", "README.md", "a.b/c"}
    assert find_named_files("login.py", files) == {"src/app/login.py"}
    assert find_named_files("Is it lib/util.py? Or login.py.", files) == {"lib/util.py", "src/app/login.py"}
    assert find_named_files("make it faster", files) == frozenset()


def _facts(**conflicts: PredictedConflict) -> SessionFacts:
    spec = SessionCreated("t", "s", "", "", "demo", "process", "worktree", "b", "main", "/r", "/w")
    return SessionFacts("p-s", "p", spec, 0.0, 0.0, predicted_conflicts=conflicts)


def test_only_changed_predictions_are_recorded() -> None:
    text = ConflictingPair("o", "p-s", ("x", "y"), "text")
    [predicted] = conflict_events(_facts(), {"o": text})
    assert (predicted.type, predicted.other, predicted.files, predicted.kind) == (
        "conflict-predicted",
        "o",
        ("x", "y"),
        "text",
    )
    assert conflict_events(_facts(o=PredictedConflict(("y", "x"), "text", 1.0)), {"o": text}) == []
    [more] = conflict_events(_facts(o=PredictedConflict(("x",), "text", 1.0)), {"o": text})
    assert more.type == "conflict-predicted"
    [worse] = conflict_events(_facts(o=PredictedConflict(("x", "y"), "overlap", 1.0)), {"o": text})
    assert worse.type == "conflict-predicted"
    [less] = conflict_events(_facts(o=PredictedConflict(("x", "y", "z"), "text", 1.0)), {"o": text})
    assert (less.type, less.files) == ("conflict-cleared", ("x", "y"))
    [over] = conflict_events(_facts(o=PredictedConflict(("x",), "text", 1.0)), {})
    assert (over.type, over.other, over.files) == ("conflict-cleared", "o", ())
