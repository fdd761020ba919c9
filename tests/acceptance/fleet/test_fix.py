"""`ao fix`: what fails is measured, given to one agent per cause, verified, merged, and measured again."""

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

PLENTY = 240.0
Json = dict[str, Any]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


def ended(box: Sandbox, run: str) -> Json:
    """A run, once it is over."""

    def look() -> Json | None:
        found: Json = box.request("GET", f"/api/fixes/{run}")
        return found if found["ended"] else None

    return box.until(look, f"{run} to end", PLENTY) or {}


def groups(run: Json) -> list[Json]:
    return [group for each in run["rounds"] for group in each["groups"]]


def scripted(box: Sandbox, name: str, text: str) -> str:
    """A program that the agent runs in its workspace; it knows its task's first line as `title`."""
    file = box.folder / f"{name}.py"
    head = "import os, pathlib, subprocess\ntitle = pathlib.Path(os.environ['AO_TASK_FILE']).read_text().partition('\\n')[0]\n"
    file.write_text(head + text)
    return f"{sys.executable} {file}"


def test_thirty_failures_of_eight_causes_become_none(box: Sandbox) -> None:
    failing_project.seed(box)
    box.start()
    before = box.git("rev-parse", "main")
    run = ended(box, box.json("fix", "--no-wait")["id"])
    done = box.ao("fix", run["id"], check=False)
    assert done.returncode == 0 and "30 → 0 in 1 round: main is green." in done.stdout, done.stdout
    assert (run["before"], run["after"], run["state"]) == (30, 0, "green")
    assert {tool["name"]: tool["before"] for tool in run["tools"]} == failing_project.SEEDED
    causes = groups(run)
    assert len(causes) == len(failing_project.CAUSES) == 8 and {cause["outcome"] for cause in causes} == {"landed"}
    assert len({cause["session"] for cause in causes}) == 8
    # Nothing but what mends the causes was changed, and each landing is one cause's.
    expected = sorted({file for _, changes in failing_project.CAUSES.values() for file, _, _ in changes})
    assert box.git("diff", "--name-only", before, "main").split("\n") == expected
    for file, text in failing_project.FILES.items():
        mended = text
        for _, changes in failing_project.CAUSES.values():
            for where, old, new in changes:
                mended = mended.replace(old, new) if where == file else mended
        assert (box.repo / file).read_text() == mended, file
    landed = box.git("log", "--format=%H", f"{before}..main").split("\n")
    assert sorted(landed) == sorted(cause["commit"] for cause in causes)
    # Each was verified at its own commit, and again on top of what had landed before it.
    verified = list((box.home.path / "checks" / "results" / "app").glob("*/fix-F1-1.*.json"))
    assert len(verified) >= 8 + 7


def test_what_only_looks_fixed_goes_back_to_the_agent(box: Sandbox) -> None:
    cheat = scripted(
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
    run = ended(box, box.json("fix", "--no-wait")["id"])
    assert run["after"] == 0 and {group["outcome"] for group in groups(run)} == {"landed"}
    told = {}
    for group in groups(run):
        messages = box.request("GET", f"/api/sessions/{group['session']}/messages")["messages"]
        told[group["title"]] = next(one["content"] for one in messages if "not fixed" in one["content"])
    slug = next(text for title, text in told.items() if "slug" in title)
    assert "these tests must pass, and were not run" in slug and "is not there any more" in slug
    assert "# type: ignore" in next(text for title, text in told.items() if "models" in title)
    assert "pyproject.toml" in next(text for title, text in told.items() if "F401" in title)
    broken = next(text for title, text in told.items() if "cancel" in title)
    assert "these fail now, and did not before" in broken and "test_tax" in broken
    changed = box.git("diff", "--name-only", before, "main").split("\n")
    assert changed == ["shop/models.py", "shop/orders.py", "shop/stock.py", "shop/tax.py", "shop/text.py"]
    assert "type: ignore" not in box.git("show", "main:shop/models.py")


def test_what_cannot_be_mended_is_given_up_and_told(box: Sandbox) -> None:
    nothing = "[[edit: notes.md|tried]] [[commit: try]] [[done: tried]]"
    failing_project.seed(box, " [[wait]] ".join([nothing] * 4), ("slug", "legacy"))
    box.start()
    done = box.ao("fix", "--max-rounds", "1", check=False)
    assert done.returncode == 1 and "7 → 7" in done.stdout, done.stdout + done.stderr
    [run] = box.json("fix", "--list")["fixes"]
    assert run["state"] == "left"
    for group in groups(run)[:2]:
        assert group["outcome"] == "failed" and "still fail" in group["reason"]
        assert box.session(group["session"])["status"] == "stopped"
    assert box.git("log", "--format=%s", "main").split("\n") == ["the shop", "start"]


def test_a_run_goes_on_after_the_daemons_death(box: Sandbox) -> None:
    hold = box.folder / "hold"
    hold.touch()
    script = f"[[sh: while test -e {hold}; do sleep 0.05; done; MEND]] [[commit: mend]] [[done: mended]]"
    failing_project.seed(box, script, ("slug", "legacy", "mean"))
    box.start()
    run = box.json("fix", "--no-wait")["id"]
    box.stop(signal.SIGKILL)  # while it measures
    box.start()
    box.until(lambda: len(box.sessions()) == 3, "an agent a cause", PLENTY)
    box.stop(signal.SIGKILL)  # while agents work
    box.start()
    hold.unlink()
    box.until(lambda: "Fix:" in box.git("log", "--format=%s", "main"), "the first to land", PLENTY)
    box.stop(signal.SIGKILL)  # while others are verified or land
    box.start()
    found = ended(box, run)
    assert found["state"] == "green" and (found["before"], found["after"]) == (12, 0)
    assert len(box.sessions()) == 3 and len(found["rounds"]) == 2
    assert len(box.git("log", "--format=%h", "main").split("\n")) == 2 + 3


def test_verified_fixes_are_left_for_review_where_nothing_is_to_land(box: Sandbox) -> None:
    failing_project.seed(box, None, ("slug", "legacy"))
    box.start()
    done = box.ao("fix", "--no-merge", check=False)
    assert done.returncode == 1 and "left for you to merge: ao merge" in done.stdout, done.stdout + done.stderr
    [run] = box.json("fix", "--list")["fixes"]
    assert run["state"] == "review" and {group["outcome"] for group in groups(run)} == {"ready"}
    for group in groups(run):
        session = box.session(group["session"])
        [check] = session["pr"]["checks"]
        assert check["name"] == f"fix-F1-1.{group['number']}" and check["state"] == "success"
    assert box.git("log", "--format=%s", "main").split("\n") == ["the shop", "start"]
    box.ao("merge", *(group["session"] for group in groups(run)))
    assert "Nothing fails" in box.ao("fix").stdout


def test_a_command_of_ones_own_and_what_cannot_be_run(box: Sandbox) -> None:
    failing_project.seed(box, "[[sh: rm -f broken]] [[commit: mend]] [[done: mended]]", ())
    (box.repo / "broken").touch()
    box.git("add", "broken")
    box.git("commit", "-q", "-m", "break it")
    box.start()
    shown = box.ao("fix", "--dry-run", "--command", "no-such-program --at-all", check=False)
    assert shown.returncode == 1 and "environment not set up: " in shown.stdout and "ao init --check" in shown.stdout
    shown = box.ao("fix", "--dry-run", "--command", "! test -e broken", check=False)
    assert "1" in shown.stdout and "ends with exit code 1" in shown.stdout
    found = json.loads(box.ao("fix", "--dry-run", "--command", "! test -e broken", "--json", check=False).stdout)
    assert found["failures"][0]["failures"][0]["message"] == "! test -e broken ends with exit code 1"
    done = box.ao("fix", "--command", "! test -e broken", "--command", "pytest -q", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 → 0" in done.stdout and "pytest" in done.stdout and not (box.repo / "broken").exists()


def test_what_is_refused_says_what_to_do(box: Sandbox) -> None:
    hold = f"[[sh: while test -e {box.folder}/hold; do sleep 0.05; done]]"
    (box.folder / "hold").touch()
    failing_project.seed(box, hold, ("slug",))
    box.start()

    def refused(*argv: str) -> str:
        done = box.ao("fix", *argv, check=False)
        assert done.returncode in (1, 2, 3) and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    assert "no fixing run F9" in refused("F9")
    assert "has no branch 'nowhere'" in refused("--base", "nowhere")
    run = box.json("fix", "--no-wait")["id"]
    box.until(box.sessions, "an agent", PLENTY)
    assert f"ao fix --stop {run}" in refused()
    stopped = box.ao("fix", "--stop", run, check=False)
    assert "was stopped" in stopped.stdout
    assert [one["status"] for one in box.sessions()] == ["stopped"]
    # A project without anything that finds failures says so.
    box.repository("bare")
    done = box.ao("fix", check=False)
    assert done.returncode == 1 and "--command" in done.stdout
    # What came with the repository is not run before it is trusted.
    box.repository("theirs", config="defaults: {agent: demo}\nproject:\n  fix: {commands: [touch never]}\n")
    box.git("add", "-f", "agent-orchestrator.yaml")
    box.git("commit", "-q", "-m", "theirs")
    assert "(fix): read it, then trust it: ao trust" in refused()
    # Where changes land elsewhere, what fails can be seen and not be fixed.
    text = "defaults: {agent: demo}\nproject:\n  repo: owner/name\n  scm: {plugin: github}\n"
    box.repository("forged", config=text)
    assert "local merge queue" in refused() and "no tests" in box.ao("fix", "--dry-run", check=False).stdout
