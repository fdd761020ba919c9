"""`ao fix`: failures are measured, assigned to one agent per cause, verified, merged and measured again."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.fleet import failing_project

TIMEOUT = 240.0
Json = dict[str, Any]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


def wait_for_run(box: Sandbox, run: str) -> Json:
    """Wait until a run has ended, and return it."""

    def finished_run() -> Json | None:
        run_state: Json = box.request("GET", f"/api/fixes/{run}")
        return run_state if run_state["ended"] else None

    return box.wait_until(finished_run, f"{run} to end", TIMEOUT) or {}


def all_groups(run: Json) -> list[Json]:
    return [group for round_ in run["rounds"] for group in round_["groups"]]


def write_agent_program(box: Sandbox, name: str, text: str) -> str:
    """Write a program for the agent to run in its workspace, with its task's first line as `title`, and return its command."""
    file = box.folder / f"{name}.py"
    head = "import os, pathlib, subprocess\ntitle = pathlib.Path(os.environ['AO_TASK_FILE']).read_text().partition('\\n')[0]\n"
    file.write_text(head + text)
    return f"{sys.executable} {file}"


@pytest.mark.long
def test_thirty_failures_of_eight_causes_become_none(box: Sandbox) -> None:
    failing_project.seed(box)
    box.start()
    before = box.git("rev-parse", "main")
    run = wait_for_run(box, box.json("fix", "--no-wait")["id"])
    done = box.ao("fix", run["id"], check=False)
    assert done.returncode == 0 and "30 → 0 in 1 round: main is green." in done.stdout, done.stdout
    assert (run["before"], run["after"], run["state"]) == (30, 0, "green")
    assert {tool["name"]: tool["before"] for tool in run["tools"]} == failing_project.SEEDED
    causes = all_groups(run)
    assert len(causes) == len(failing_project.CAUSES) == 8 and {cause["outcome"] for cause in causes} == {"landed"}
    assert len({cause["session"] for cause in causes}) == 8
    # Only the changes that fix the causes were made, and each merge belongs to one cause.
    expected = sorted({file for _, changes in failing_project.CAUSES.values() for file, _, _ in changes})
    assert box.git("diff", "--name-only", before, "main").split("\n") == expected
    for file, text in failing_project.FILES.items():
        fixed = text
        for _, changes in failing_project.CAUSES.values():
            for path, old, new in changes:
                fixed = fixed.replace(old, new) if path == file else fixed
        assert (box.repo / file).read_text() == fixed, file
    commits = box.git("log", "--format=%H", f"{before}..main").split("\n")
    assert sorted(commits) == sorted(cause["commit"] for cause in causes)
    # Each was verified at its own commit, and again on top of the merges before it.
    verified = list((box.home.path / "checks" / "results" / "app").glob("*/fix-F1-1.*.json"))
    assert len(verified) >= 8 + 7


@pytest.mark.long
def test_a_cheating_fix_is_sent_back_to_the_agent(box: Sandbox) -> None:
    cheat = write_agent_program(
        box,
        "cheat",
        """
if "slug()" in title:
    subprocess.run(["git", "rm", "-q", "tests/test_text.py"], check=True)
elif "models" in title:
    path = pathlib.Path("shop/models.py")
    path.write_text("".join(line + "  # type: ignore" + "\\n" for line in path.read_text().splitlines()))
elif "F401" in title:
    path = pathlib.Path("pyproject.toml")
    path.write_text(path.read_text().replace('"F"]', '"F"]\\nlint.ignore = ["F401"]'))
else:
    pathlib.Path("shop/orders.py").write_text("def cancel(name: str) -> str:\\n    return f'cancelled {name}'\\n")
    pathlib.Path("shop/tax.py").write_text("def tax(amount: float) -> float:\\n    return amount\\n")
""",
    )
    script = f"[[sh: {cheat}]] [[commit: mend]] [[done: mended]] [[wait]] "
    script += "[[sh: git checkout -q main -- .; MEND]] [[commit: really mend]] [[done: mended]]"
    failing_project.seed(box, script, ("slug", "models", "imports", "cancel"))
    box.start()
    before = box.git("rev-parse", "main")
    run = wait_for_run(box, box.json("fix", "--no-wait")["id"])
    assert run["after"] == 0 and {group["outcome"] for group in all_groups(run)} == {"landed"}
    feedback = {}
    for group in all_groups(run):
        messages = box.request("GET", f"/api/sessions/{group['session']}/messages")["messages"]
        feedback[group["title"]] = next(message["content"] for message in messages if "not fixed" in message["content"])
    slug = next(text for title, text in feedback.items() if "slug" in title)
    assert "these tests must pass, and were not run" in slug and "is not there any more" in slug
    assert "# type: ignore" in next(text for title, text in feedback.items() if "models" in title)
    assert "pyproject.toml" in next(text for title, text in feedback.items() if "F401" in title)
    broken = next(text for title, text in feedback.items() if "cancel" in title)
    assert "these fail now, and did not before" in broken and "test_tax" in broken
    changed = box.git("diff", "--name-only", before, "main").split("\n")
    assert changed == ["shop/models.py", "shop/orders.py", "shop/stock.py", "shop/tax.py", "shop/text.py"]
    assert "type: ignore" not in box.git("show", "main:shop/models.py")


@pytest.mark.long
def test_failures_that_cannot_be_fixed_are_given_up_and_reported(box: Sandbox) -> None:
    nothing = "[[edit: notes.md|tried]] [[commit: try]] [[done: tried]]"
    failing_project.seed(box, " [[wait]] ".join([nothing] * 4), ("slug", "legacy"))
    box.start()
    done = box.ao("fix", "--max-rounds", "1", check=False)
    assert done.returncode == 1 and "7 → 7" in done.stdout, done.stdout + done.stderr
    [run] = box.json("fix", "--list")["fixes"]
    assert run["state"] == "left"
    for group in all_groups(run)[:2]:
        assert group["outcome"] == "failed" and "still fail" in group["reason"]
        assert box.session(group["session"])["status"] == "stopped"
    assert box.git("log", "--format=%s", "main").split("\n") == ["the shop", "start"]


@pytest.mark.long
def test_a_run_continues_after_crashes_of_the_daemon(box: Sandbox) -> None:
    hold = box.folder / "hold"
    hold.touch()
    script = f"[[sh: while test -e {hold}; do sleep 0.05; done; MEND]] [[commit: mend]] [[done: mended]]"
    failing_project.seed(box, script, ("slug", "legacy", "mean"))
    box.start()
    run = box.json("fix", "--no-wait")["id"]
    box.stop(signal.SIGKILL)  # while it measures
    box.start()
    box.wait_until(lambda: len(box.sessions()) == 3, "one agent per cause", TIMEOUT)
    box.stop(signal.SIGKILL)  # while agents work
    box.start()
    hold.unlink()
    box.wait_until(lambda: "Fix:" in box.git("log", "--format=%s", "main"), "the first merge", TIMEOUT)
    box.stop(signal.SIGKILL)  # while others are verified or merged
    box.start()
    finished = wait_for_run(box, run)
    assert finished["state"] == "green" and (finished["before"], finished["after"]) == (12, 0)
    assert len(box.sessions()) == 3 and len(finished["rounds"]) == 2
    assert len(box.git("log", "--format=%h", "main").split("\n")) == 2 + 3


@pytest.mark.long
def test_with_no_merge_verified_fixes_are_left_for_review(box: Sandbox) -> None:
    failing_project.seed(box, None, ("slug", "legacy"))
    box.start()
    done = box.ao("fix", "--no-merge", check=False)
    assert done.returncode == 1 and "left for you to merge: ao merge" in done.stdout, done.stdout + done.stderr
    [run] = box.json("fix", "--list")["fixes"]
    assert run["state"] == "review" and {group["outcome"] for group in all_groups(run)} == {"ready"}
    for group in all_groups(run):
        session = box.session(group["session"])
        [check] = session["pr"]["checks"]
        assert check["name"] == f"fix-F1-1.{group['number']}" and check["state"] == "success"
    assert box.git("log", "--format=%s", "main").split("\n") == ["the shop", "start"]
    box.ao("merge", *(group["session"] for group in all_groups(run)))
    assert "Nothing fails" in box.ao("fix").stdout


@pytest.mark.long
def test_custom_commands_are_measured_and_missing_programs_reported(box: Sandbox) -> None:
    failing_project.seed(box, "[[sh: rm -f broken]] [[commit: mend]] [[done: mended]]", ())
    (box.repo / "broken").touch()
    box.git("add", "broken")
    box.git("commit", "-q", "-m", "break it")
    box.start()
    dry_run = box.ao("fix", "--dry-run", "--command", "no-such-program --at-all", check=False)
    assert (
        dry_run.returncode == 1 and "environment not set up: " in dry_run.stdout and "ao init --check" in dry_run.stdout
    )
    dry_run = box.ao("fix", "--dry-run", "--command", "! test -e broken", check=False)
    assert "1" in dry_run.stdout and "ends with exit code 1" in dry_run.stdout
    report = json.loads(box.ao("fix", "--dry-run", "--command", "! test -e broken", "--json", check=False).stdout)
    assert report["failures"][0]["failures"][0]["message"] == "! test -e broken ends with exit code 1"
    done = box.ao("fix", "--command", "! test -e broken", "--command", "pytest -q", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 → 0" in done.stdout and "pytest" in done.stdout and not (box.repo / "broken").exists()


def test_refusals_name_the_remedy(box: Sandbox) -> None:
    hold = f"[[sh: while test -e {box.folder}/hold; do sleep 0.05; done]]"
    (box.folder / "hold").touch()
    failing_project.seed(box, hold, ("slug",))
    box.start()

    def refusal(*argv: str) -> str:
        done = box.ao("fix", *argv, check=False)
        assert done.returncode in (1, 2, 3) and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    assert "no fixing run F9" in refusal("F9")
    assert "has no branch 'nowhere'" in refusal("--base", "nowhere")
    run = box.json("fix", "--no-wait")["id"]
    box.wait_until(box.sessions, "an agent", TIMEOUT)
    assert f"ao fix --stop {run}" in refusal()
    stopped = box.ao("fix", "--stop", run, check=False)
    assert "was stopped" in stopped.stdout
    assert [session["status"] for session in box.sessions()] == ["stopped"]
    # A project without anything that finds failures says so.
    box.repository("bare")
    done = box.ao("fix", check=False)
    assert done.returncode == 1 and "--command" in done.stdout
    # What came with the repository is not run before it is trusted.
    box.repository("theirs", config="defaults: {agent: demo}\nproject:\n  fix: {commands: [touch never]}\n")
    box.git("add", "-f", "agent-orchestrator.yaml")
    box.git("commit", "-q", "-m", "theirs")
    assert "(fix): read it, then trust it: ao trust" in refusal()
    # If changes are merged at a forge, failures are shown but not fixed.
    text = "defaults: {agent: demo}\nproject:\n  repo: owner/name\n  scm: {plugin: github}\n"
    box.repository("forged", config=text)
    assert "local merge queue" in refusal() and "no tests" in box.ao("fix", "--dry-run", check=False).stdout
