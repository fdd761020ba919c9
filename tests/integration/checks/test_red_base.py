"""A change judged on a base that fails, by what every test runner really printed: recorded output, printed again by the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.changes.checks import Assessment, assess, owned_failures
from tests.integration.checks.stage import Stage
from tests.unit.changes.checks.record import RECORDED
from tests.unit.changes.checks.runners import RUNNERS, Runner

pytestmark = pytest.mark.anyio
REPLAY = "if [ -e report ]; then cp report junit-written.xml; fi; cat output; exit $(cat code)"
NAMES = (
    "pytest-q", "pytest-junit", "unittest-3.13", "django", "node", "node-tap", "mocha", "tape", "ava", "jest", "vitest", "go", "go-json",
    "cargo", "ctest", "meson", "prove",
)  # fmt: skip
runners = pytest.mark.parametrize(
    "runner", [one for one in RUNNERS if one.name in NAMES], ids=lambda runner: runner.name
)


def drops_tests(found: Assessment) -> bool:
    """Whether tests that pass on the base are not run any more."""
    return bool(found.vanished or found.newly_skipped or found.fewer)


def files(runner: Runner, case: str, mark: str) -> dict[str, str]:
    """A commit whose command prints what the runner printed in this case."""
    head, _, output = (RECORDED / runner.name / f"{case}.txt").read_text().partition("\n")
    report = RECORDED / runner.name / f"{case}.xml"
    found = {
        "output": output,
        "code": head.removeprefix("exit code "),
        "mark": mark,
        ".gitignore": "junit-written.xml\n",
    }
    return {**found, "report": report.read_text()} if report.exists() else found


async def judged(stage: Stage, runner: Runner, base: str, head: str, *, mark: str = "2") -> Assessment:
    """What a check says of a change that makes the one case into the other."""
    before = stage.commit(files(runner, base, "1"))
    stage.commit({"mark": "0"})
    (stage.repo / "report").unlink(missing_ok=True)
    after = stage.commit(files(runner, head, mark))
    return await assess(stage.checks, stage.spec(REPLAY, commit=after, base="main"), before)


@runners
async def test_new_and_known_failures_are_told_apart(stage: Stage, runner: Runner) -> None:
    adds, subtracts, _ = runner.names
    found = await judged(stage, runner, "one", "two")
    assert (found.state, set(found.new), set(found.known)) == ("failure", {subtracts}, {adds})
    assert not drops_tests(found) and not found.is_known
    task = f"Repair {adds.replace('::', ' ').split()[-1].split(' > ')[-1]}, please."
    assert owned_failures(task, found.known, "main") == (adds,)
    found = await judged(stage, runner, "one", "one", mark="3")
    assert found.is_known and set(found.known) == {adds} and not drops_tests(found)


@runners
async def test_tests_that_are_not_run_any_more_are_named_or_counted(stage: Stage, runner: Runner) -> None:
    if runner.name in ("go", "prove"):
        pytest.skip(f"{runner.command} says nothing of single tests that pass")
    subtracts = runner.names[1]
    gone = await judged(stage, runner, "pass", "removed")
    assert (gone.state, dict(gone.new)) == ("success", {})
    assert gone.vanished == (subtracts,) if runner.names_passed else gone.fewer == 1
    skipped = await judged(stage, runner, "pass", "skipped", mark="3")
    assert drops_tests(skipped) and not skipped.new
    red = await judged(stage, runner, "one", "red_skipped", mark="4")
    assert red.state == "failure" and drops_tests(red) and not red.new


@runners
async def test_a_runner_that_is_not_there_gives_no_verdict(stage: Stage, runner: Runner) -> None:
    found = await judged(stage, runner, "no_runner", "no_runner")
    assert found.state == "not_set_up" and found.reason.endswith("not found") and not found.new
    found = await judged(stage, runner, "pass", "no_runner", mark="3")
    assert found.state == "failure" and found.new, "the base shows that it is there"


async def test_what_only_the_change_lacks_is_its_failure(stage: Stage) -> None:
    runner = next(one for one in RUNNERS if one.name == "pytest-junit")
    found = await judged(stage, runner, "pass", "missing")
    assert (found.state, set(found.new), found.vanished) == ("failure", {"test_sums.py"}, ())
    found = await judged(stage, runner, "missing_all", "missing_all", mark="3")
    assert (found.state, found.reason) == ("not_set_up", "module no_such_thing not found")


async def test_a_failure_that_is_never_the_same_twice_is_known(stage: Stage, tmp_path: Path) -> None:
    stage.commit({"a.txt": "x\n"})
    command = "date +%N%s >>$OUT/times; echo error: it took $(tail -n 1 $OUT/times | rev); echo odd; exit 3"
    base = stage.commit({"b.txt": "x\n"})
    head = stage.commit({"c.txt": "x\n"})
    found = await assess(stage.checks, stage.spec(command, commit=head, base="main"), base)
    assert found.is_known, (found.new, found.known)
