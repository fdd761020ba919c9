"""Assessments of changes on a failing base, with recorded output of every test runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.changes.checks.assessment import Assessment, assess
from agent_orchestrator.changes.checks.ownership import owned_failures
from tests.integration.checks.stage import CheckStage
from tests.unit.changes.checks.record import RECORDED
from tests.unit.changes.checks.runners import RUNNERS, RecordedRunner

pytestmark = pytest.mark.anyio
REPLAY = "if [ -e report ]; then cp report junit-written.xml; fi; cat output; exit $(cat code)"
NAMES = (
    "pytest-q", "pytest-junit", "unittest-3.13", "django", "node", "node-tap", "mocha", "tape", "ava", "jest", "vitest", "go", "go-json",
    "cargo", "ctest", "meson", "prove",
)  # fmt: skip
runners = pytest.mark.parametrize(
    "runner", [entry for entry in RUNNERS if entry.name in NAMES], ids=lambda runner: runner.name
)


def drops_tests(assessment: Assessment) -> bool:
    """Return whether tests that pass on the base are no longer run."""
    return bool(assessment.vanished or assessment.newly_skipped or assessment.fewer)


def recorded_files(runner: RecordedRunner, case: str, mark: str) -> dict[str, str]:
    """Return the files of a commit whose command prints the runner's recorded output of this case."""
    head, _, output = (RECORDED / runner.name / f"{case}.txt").read_text().partition("\n")
    report = RECORDED / runner.name / f"{case}.xml"
    assessment = {
        "output": output,
        "code": head.removeprefix("exit code "),
        "mark": mark,
        ".gitignore": "junit-written.xml\n",
    }
    return {**assessment, "report": report.read_text()} if report.exists() else assessment


async def assess_change(
    stage: CheckStage, runner: RecordedRunner, base: str, head: str, *, mark: str = "2"
) -> Assessment:
    """Return the assessment of a change from the one recorded case to the other."""
    before = stage.commit(recorded_files(runner, base, "1"))
    stage.commit({"mark": "0"})
    (stage.repo / "report").unlink(missing_ok=True)
    after = stage.commit(recorded_files(runner, head, mark))
    return await assess(stage.checks, stage.spec(REPLAY, commit=after, base="main"), before)


@runners
async def test_new_and_known_failures_are_distinguished(stage: CheckStage, runner: RecordedRunner) -> None:
    adds, subtracts, _ = runner.names
    assessment = await assess_change(stage, runner, "one", "two")
    assert (assessment.state, set(assessment.new), set(assessment.known_failures)) == ("failure", {subtracts}, {adds})
    assert not drops_tests(assessment) and not assessment.is_known
    task = f"Repair {adds.replace('::', ' ').split()[-1].split(' > ')[-1]}, please."
    assert owned_failures(task, assessment.known_failures, "main") == (adds,)
    assessment = await assess_change(stage, runner, "one", "one", mark="3")
    assert assessment.is_known and set(assessment.known_failures) == {adds} and not drops_tests(assessment)


@runners
async def test_tests_that_no_longer_run_are_named_or_counted(stage: CheckStage, runner: RecordedRunner) -> None:
    if runner.name in ("go", "prove"):
        pytest.skip(f"{runner.command} says nothing of single tests that pass")
    subtracts = runner.names[1]
    removed = await assess_change(stage, runner, "pass", "removed")
    assert (removed.state, dict(removed.new)) == ("success", {})
    assert removed.vanished == (subtracts,) if runner.names_passed else removed.fewer == 1
    skipped = await assess_change(stage, runner, "pass", "skipped", mark="3")
    assert drops_tests(skipped) and not skipped.new
    red = await assess_change(stage, runner, "one", "red_skipped", mark="4")
    assert red.state == "failure" and drops_tests(red) and not red.new


@runners
async def test_a_missing_runner_gives_no_result(stage: CheckStage, runner: RecordedRunner) -> None:
    assessment = await assess_change(stage, runner, "no_runner", "no_runner")
    assert assessment.state == "not_set_up" and assessment.reason.endswith("not found") and not assessment.new
    assessment = await assess_change(stage, runner, "pass", "no_runner", mark="3")
    assert assessment.state == "failure" and assessment.new, "the base shows that it is there"


async def test_a_module_missing_only_in_the_change_is_its_failure(stage: CheckStage) -> None:
    runner = next(entry for entry in RUNNERS if entry.name == "pytest-junit")
    assessment = await assess_change(stage, runner, "pass", "missing")
    assert (assessment.state, set(assessment.new), assessment.vanished) == ("failure", {"test_sums.py"}, ())
    assessment = await assess_change(stage, runner, "missing_all", "missing_all", mark="3")
    assert (assessment.state, assessment.reason) == ("not_set_up", "module no_such_thing not found")


async def test_a_failure_with_varying_output_is_known(stage: CheckStage, tmp_path: Path) -> None:
    stage.commit({"a.txt": "x\n"})
    command = "date +%N%s >>$OUT/times; echo error: it took $(tail -n 1 $OUT/times | rev); echo odd; exit 3"
    base = stage.commit({"b.txt": "x\n"})
    head = stage.commit({"c.txt": "x\n"})
    assessment = await assess(stage.checks, stage.spec(command, commit=head, base="main"), base)
    assert assessment.is_known, (assessment.new, assessment.known_failures)
