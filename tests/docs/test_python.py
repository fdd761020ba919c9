"""The examples of the Python page run against a real daemon, with the demo agent in place of agents that need a login."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.planning import goal, task
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "python.md"
CONFIG = """\
defaults: {agent: demo, runtime: process}
plugins: [{path: ./greeter.py}]
projects:
  my-app: {path: ., repo: myorg/myrepo, scm: local, tracker: local, ci: {command: "test ! -e bad"}}
agents:
  claude-code: {tool: demo}
reactions: {ci-failed: {auto: false}}
"""


def example(text: str) -> str:
    """Return the page's block that contains a text."""
    return next(block.text for block in blocks(PAGE, "python") if text in block.text)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("python")) as sandbox:
        repo = sandbox.repository("my-app", config=CONFIG)
        (repo / "greeter.py").write_text(example("class Greeter"))
        sandbox.start()
        yield sandbox


def run(box: Sandbox, text: str) -> str:
    file = box.folder / "example.py"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, str(file)], cwd=box.repo, env=box.env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_plans_spawns_fixes_and_waits(box: Sandbox) -> None:
    spoil = task("spoilt", description="[[edit: bad|x]] [[commit: spoil]] [[done: made it]]")
    text = example("make mypy strict pass").replace('"make mypy strict pass"', repr(goal(task("fine"), spoil)))
    fix_message = "[[sh: git rm -q bad]] [[edit: s|x]] [[commit: mend]] [[done: mended]]"
    text = text.replace('f"The checks fail:\\n{failure.logs}"', repr(fix_message))
    assert sorted(run(box, text).splitlines()) == ["my-app-make-fine done made fine", "my-app-make-spoilt done made it"]
    ready = dict.fromkeys(("make-fine", "make-spoilt"), "review_pending")
    box.wait_until(
        lambda: {session["name"]: session["status"] for session in box.sessions()} == ready, "both to be reviewed"
    )


def test_the_example_of_sessions(box: Sandbox) -> None:
    text = example("fix-auth-bug").replace('runtime="tmux",', 'prompt="[[edit: a|x]] [[commit: a]] [[done: a]]",')
    text = text.replace('await session.send("Look at src/auth.py first")', "")
    out = run(box, text + "\nimport asyncio\nasyncio.run(fix_auth())\n")
    assert out.startswith("Session my-app-fix-auth-bug started at ") and "+x" in out
    box.wait_until(lambda: box.session("fix-auth-bug")["status"] == "merged", "it to land")


def test_the_example_with_single_steps(box: Sandbox) -> None:
    box.ao("issue", "new", "Say hello", "-m", "[[edit: h|x]] [[commit: h]] [[done: said]]")
    text = example("create_worktree").replace("AgentRuntime.TMUX", "AgentRuntime.PROCESS")
    text = text.replace("context=task.description", 'context="[[edit: h|x]] [[commit: h]] [[done: said]]"')
    run(box, text + "\nimport asyncio\nasyncio.run(one_by_one())\n")
    (session,) = [candidate for candidate in box.sessions() if candidate["title"] == "Say hello"]
    assert session["profile"] == "claude-code"
    box.wait_until(lambda: box.session(session["id"])["status"] == "review_pending", "its change")


def test_the_example_of_a_custom_orchestrator(box: Sandbox) -> None:
    out = run(box, example("class CustomOrchestrator") + "\nimport asyncio\nasyncio.run(custom('Login'))\n")
    assert out.splitlines() == ["login-tests True", "login-code True"]


def test_the_example_without_async(box: Sandbox) -> None:
    out = run(box, example("def hello").replace("say hello", "greet all") + "\nhello()\n")
    assert out.splitlines()[-1] in ("my-app-greet-all pr_open", "my-app-greet-all review_pending")


def test_the_example_of_a_custom_agent(box: Sandbox) -> None:
    box.ao("new", "--agent", "greeter", "--name", "greeting", "good morning")
    box.wait_until(lambda: box.session("greeting")["status"] == "review_pending", "its change")
    assert box.git("show", "feature/greeting:greeting.txt") == "good morning"
