"""`ao init`: detected commands are shown, confirmed, tested in a clean checkout and written."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.config.dialogue import CTRL_C, run_on_terminal

QUESTION = "Run and prove them in a clean checkout? [Y/n]"
PASSING = """\
import unittest

class Sums(unittest.TestCase):
    def test_one(self): pass
    def test_two(self): pass

if __name__ == "__main__":
    unittest.main(verbosity=2)
"""
FAILING = PASSING.replace("test_two(self): pass", "test_two(self): self.fail('no')")
MAKEFILE = "test:\n\tpython3 sums.py\n"

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@pytest.fixture(scope="module")
def daemon_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield one daemon for all tests of this module; each has its own repository."""
    with Sandbox(tmp_path_factory.mktemp("house"), "process") as box:
        box.repo = box.folder
        box.home.path.mkdir()
        box.home.config.write_text("defaults: {agent: demo, runtime: process}\n")
        box.start()
        yield box


def make_repository(box: Sandbox, name: str, files: Mapping[str, str]) -> Path:
    """Create a repository with these files committed and without a configuration."""
    repo = box.folder / name
    for path, text in files.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text)
    box.git("init", "-q", "-b", "main", str(repo), cwd=box.folder)
    commit(box, repo)
    return repo


def commit(box: Sandbox, repo: Path) -> None:
    box.git("add", "-A", ":!agent-orchestrator.yaml", cwd=repo)
    box.git("commit", "-q", "-m", "change", cwd=repo)


def read_config(repo: Path) -> str:
    return (repo / "agent-orchestrator.yaml").read_text()


# -- the dialogue ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_init_shows_asks_proves_and_writes(daemon_box: Sandbox) -> None:
    tests = {"tests/__init__.py": "", "tests/test_sums.py": PASSING}
    repo = make_repository(daemon_box, "shown", tests)
    result = run_on_terminal(daemon_box, "init", answers={QUESTION: "\n"}, cwd=repo)
    assert result.code == 0, result.text
    before, _, after = result.text.partition(QUESTION)
    for line in (
        "default branch +main",
        "remote +none",
        "agent +demo",
        r"set-up +python3 -m venv \.venv",
        "test +.*unittest",
    ):
        assert re.search(rf"^  {line}", before, re.MULTILINE), line
    assert "tests/test_sums.py" in before, "the evidence is named"
    assert re.search(r"^set-up [\d.]+ s; 2 passed, [\d.]+ s$", after, re.MULTILINE), after
    assert re.search(r"python3 -m venv \.venv  [\d.]+ s", after), "progress tells the command and the time"
    assert f"wrote {repo}/agent-orchestrator.yaml" in after
    assert "postCreate: [python3 -m venv .venv]" in read_config(repo) and "unittest" in read_config(repo)
    head = daemon_box.git("rev-parse", "main^{tree}", cwd=repo)
    cached = json.loads((daemon_box.home.path / "checks" / "results" / "shown" / head / "default.json").read_text())
    assert cached["result"]["state"] == "success", "the base's result is known when the first session is checked"
    created = json.loads(
        daemon_box.ao("new", "[[write: a.txt|a]] [[commit: Add a]] [[done: ok]]", "--json", cwd=repo).stdout
    )
    daemon_box.wait_until(lambda: check_states(daemon_box, created["id"]) == ["success"], "its check")
    workspace = Path(daemon_box.session(created["id"])["workspacePath"])
    assert (workspace / ".venv").is_dir()
    assert daemon_box.git("status", "--porcelain", cwd=workspace) == ""
    assert daemon_box.git("status", "--porcelain", cwd=repo) == "?? agent-orchestrator.yaml"


def check_states(box: Sandbox, session: str) -> list[str]:
    """Return the states of a session's checks, or an empty list before it has a pull request."""
    with contextlib.suppress(NotFound):
        return [check["state"] for check in box.request("GET", f"/api/sessions/{session}/review")["checks"]]
    return []


def test_no_runs_nothing(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "refused", {"Makefile": f"test:\n\ttouch {daemon_box.folder}/refused-ran\n"})
    result = run_on_terminal(daemon_box, "init", answers={QUESTION: "n\n"}, cwd=repo)
    assert (
        result.code == 0
        and "Nothing was run. To trust these commands and prove them: ao init --check --yes" in result.text
    )
    assert "make test" in read_config(repo)
    assert not (daemon_box.folder / "refused-ran").exists()
    again = run_on_terminal(daemon_box, "init", "--check", answers={QUESTION: "n\n"}, cwd=repo)
    assert again.code == 1 and "not trusted" in again.text
    assert not (daemon_box.folder / "refused-ran").exists()
    run_on_terminal(daemon_box, "init", "--check", answers={QUESTION: "\n"}, cwd=repo)
    assert (daemon_box.folder / "refused-ran").exists()


def test_a_red_base_with_a_working_set_up_is_proven(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "red", {"Makefile": MAKEFILE, "sums.py": FAILING})
    result = daemon_box.ao("init", "--yes", cwd=repo)
    assert re.search(
        r"^1 passed, 1 failed on main, [\d.]+ s$|; 1 passed, 1 failed on main, ", result.stdout, re.MULTILINE
    )
    proof = json.loads(daemon_box.ao("init", "--check", "--json", cwd=repo).stdout)
    assert (proof["proven"], proof["base"]) == (True, "main")
    assert [(check["state"], check["passed"], check["failed"]) for check in proof["checks"]] == [("failure", 1, 1)]


@needs_npm
def test_a_command_without_a_passing_test_is_not_proven(daemon_box: Sandbox) -> None:
    broken = PASSING.replace(
        "    def test_one", "    def setUp(self): raise ValueError('not configured')\n\n    def test_one"
    )
    repo = make_repository(daemon_box, "none-passes", {"Makefile": MAKEFILE, "sums.py": broken})
    output = daemon_box.ao("init", "--yes", cwd=repo, check=False)
    assert (
        output.returncode == 1
        and "none of 2 tests passes (ValueError: not configured)" in output.stdout + output.stderr
    )


def test_a_set_up_that_fails_is_followed_by_the_next_detected_one(daemon_box: Sandbox) -> None:
    package = {"name": "next", "scripts": {"test": "node --test"}, "dependencies": {"left": "file:left"}}
    lock = {"name": "next", "lockfileVersion": 3, "packages": {"": {"name": "next"}}}  # `npm ci` wants them to agree
    test = "const test = require('node:test'); require('left'); test('one', () => {});\n"
    package_left = {"left/package.json": '{"name": "left", "version": "1.0.0"}', "left/index.js": ""}
    files = {
        "package.json": json.dumps(package),
        "package-lock.json": json.dumps(lock),
        "test/one.test.js": test,
        **package_left,
    }
    repo = make_repository(daemon_box, "second", files)
    done = daemon_box.ao("init", "--yes", "--json", cwd=repo)
    proof = json.loads(done.stdout)["proof"]
    assert [(attempt["setUp"], attempt["proven"]) for attempt in proof["tried"]] == [
        (["npm ci"], False),
        (["npm install"], True),
    ]
    assert "postCreate: [npm install]" in read_config(repo)


def test_an_unproven_configuration_is_explained_and_still_written(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "broken", {"Makefile": "test:\n\tno-such-program --all\n"})
    done = daemon_box.ao("init", "--yes", cwd=repo, check=False)
    assert done.returncode == 1, done
    assert "Not proven: " in done.stdout and "tried make test: " in done.stdout
    assert "no-such-program" in done.stdout, "the last relevant lines are shown"
    for command in (
        "ao config set projects.broken.postCreate",
        "ao config set projects.broken.ci.command",
        "ao init --check",
    ):
        assert command in done.stdout
    assert "make test" in read_config(repo)
    daemon_box.ao("config", "set", "projects.broken.ci.command", "true", cwd=repo)
    assert daemon_box.ao("init", "--check", cwd=repo).stdout.startswith("passes, ")


def test_failing_lint_is_left_out_and_passing_lint_becomes_a_check(daemon_box: Sandbox) -> None:
    good = make_repository(daemon_box, "tidy", {"Makefile": f"{MAKEFILE}lint:\n\ttrue\n", "sums.py": PASSING})
    assert re.search(r"test: 2 passed, [\d.]+ s; lint: passes", daemon_box.ao("init", "--yes", cwd=good).stdout)
    assert "lint: {command: make lint}" in read_config(good)
    bad = make_repository(
        daemon_box, "untidy", {"Makefile": f"{MAKEFILE}lint:\n\tno-such-linter\n", "sums.py": PASSING}
    )
    assert "left out: lint make lint: " in daemon_box.ao("init", "--yes", cwd=bad).stdout
    assert "lint: {command" not in read_config(bad)


def test_ctrl_c_ends_the_running_command(daemon_box: Sandbox) -> None:
    mark = daemon_box.folder / "sleeps"
    repo = make_repository(daemon_box, "long", {"Makefile": f"test:\n\techo $$PPID > {mark}; sleep 600\n"})
    result = run_on_terminal(daemon_box, "init", answers={QUESTION: "\n", "make test  1": CTRL_C}, cwd=repo)
    assert result.code == 130 and "interrupted: nothing was proven" in result.text
    daemon_box.wait_until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists(), "the command to be ended")


# -- without a question ------------------------------------------------------------------------------------------------


def test_without_a_terminal_nothing_runs_before_trust(daemon_box: Sandbox) -> None:
    mark = daemon_box.folder / "careful-ran"
    repo = make_repository(daemon_box, "careful", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    done = daemon_box.ao("init", cwd=repo)
    assert "Nothing was run. To trust these commands and prove them: ao init --check --yes" in done.stdout
    created = json.loads(
        daemon_box.ao("new", "[[write: a.txt|a]] [[commit: A]] [[done: ok]]", "--json", cwd=repo).stdout
    )
    daemon_box.wait_until(
        lambda: (
            "not_set_up" in check_states(daemon_box, created["id"])
            or "not confirmed" in str(daemon_box.session(created["id"]))
        ),
        "a refusal",
    )
    assert_refused(daemon_box.ao("init", "--check", cwd=repo, check=False), 1, "not trusted", "ao init --check --yes")
    daemon_box.stop()
    daemon_box.start()
    assert_refused(daemon_box.ao("init", "--check", cwd=repo, check=False), 1, "not trusted")
    assert not mark.exists()
    daemon_box.ao("init", "--check", "--yes", cwd=repo)
    assert mark.exists()
    daemon_box.ao("checks", created["id"], "--run", cwd=repo)
    daemon_box.wait_until(
        lambda: check_states(daemon_box, created["id"]) == ["success"], "its check, once it is trusted"
    )


def test_commands_that_the_user_wrote_need_no_trust(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "edited", {"Makefile": "test:\n\tfalse\n"})
    daemon_box.ao("init", cwd=repo)
    (repo / "agent-orchestrator.yaml").write_text(read_config(repo).replace("make test", "true"))
    assert daemon_box.ao("init", "--check", cwd=repo).stdout.startswith("passes, ")


def test_yes_without_proof_trusts_and_runs_nothing(daemon_box: Sandbox) -> None:
    mark = daemon_box.folder / "hasty-ran"
    repo = make_repository(daemon_box, "hasty", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    done = daemon_box.ao("init", "--yes", "--no-prove", cwd=repo)
    assert "Nothing was run. To prove these commands: ao init --check" in done.stdout and not mark.exists()
    daemon_box.ao("init", "--check", cwd=repo)
    assert mark.exists()


def test_nothing_runs_after_a_clone_before_trust(daemon_box: Sandbox) -> None:
    mark = daemon_box.folder / "cloned-ran"
    foreign_repo = make_repository(daemon_box, "theirs", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    folder = daemon_box.folder / "clones"
    folder.mkdir()
    for command in (["start", "--no-open"], ["add-project"]):
        result = run_on_terminal(daemon_box, *command, foreign_repo.as_uri(), cwd=folder)
        assert result.code == 0 and QUESTION not in result.text, result.text
    assert "make test" in read_config(folder / "theirs") and not mark.exists()
    assert_refused(daemon_box.ao("init", "--check", cwd=folder / "theirs", check=False), 1, "not trusted")
    daemon_box.ao("trust", "--yes", cwd=folder / "theirs")
    daemon_box.ao("init", "--check", cwd=folder / "theirs")
    assert mark.exists()


def test_start_asks_only_on_first_use(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "started", {"Makefile": MAKEFILE, "sums.py": PASSING})
    result = run_on_terminal(daemon_box, "start", "--no-open", str(repo), answers={QUESTION: "\n"})
    assert result.code == 0 and "2 passed" in result.text
    again = run_on_terminal(daemon_box, "start", "--no-open", str(repo))
    assert again.code == 0 and QUESTION not in again.text


def test_start_proves_without_asking_or_runs_nothing(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "yes", {"Makefile": MAKEFILE, "sums.py": PASSING})
    assert "2 passed" in daemon_box.ao("start", "--no-open", "--yes", str(repo)).stdout
    assert daemon_box.ao("init", "--check", cwd=repo).stdout.startswith("2 passed")
    mark = daemon_box.folder / "start-ran"
    other = make_repository(daemon_box, "unproven", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    output = daemon_box.ao("start", "--no-open", "--yes", "--no-prove", str(other)).stdout
    assert "ci              make test" in output and "Nothing was run." in output and not mark.exists()


def test_the_dashboards_button_trusts_and_proves_what_it_shows(daemon_box: Sandbox) -> None:
    repo = make_repository(daemon_box, "clicked", {"Makefile": MAKEFILE, "sums.py": PASSING})
    added = daemon_box.request("POST", "/api/projects", {"path": str(repo), "init": True})
    assert [item["test"] for item in added["proposal"]["candidates"]] == ["make test"] and added["trusted"] is False
    (repo / "Makefile").write_text(f"check:\n\ttrue\n{MAKEFILE.replace('test:', 'tests:')}")
    stale = prove(daemon_box, added["id"], added["proposal"]["digest"])[-1]
    assert "changed since it was shown" in stale["problem"]["detail"]
    (repo / "Makefile").write_text(MAKEFILE)
    lines = prove(daemon_box, added["id"], added["proposal"]["digest"])
    assert lines[-1]["proof"]["checks"][0]["passed"] == 2
    [listed] = [item for item in daemon_box.request("GET", "/api/projects")["projects"] if item["id"] == added["id"]]
    assert listed["trusted"] is True


def prove(box: Sandbox, project: str, digest: str) -> list[dict[str, Any]]:
    with (
        box.client() as client,
        client.stream("POST", f"/api/projects/{project}/prove", {"detected": digest}) as stream,
    ):
        return [json.loads(line) for line in iter(stream.read_line, None)]


# -- a configuration that is there -------------------------------------------------------------------------------------

COMMENTED_CONFIG = """\
# mine
projects:
  kept:
    path: .   # here
    # from the checkout
    copy: [.env]
    # the tests
    ci: {command: make test}   # quick

# what is done
reactions:
  ci-failed: {retries: 3}
"""


def test_missing_keys_are_added_in_place_and_comments_are_kept(daemon_box: Sandbox) -> None:
    tests = {
        "tests/__init__.py": "",
        "tests/test_sums.py": PASSING,
        "Makefile": "test:\n\tpython3 -m unittest -v tests.test_sums\n",
    }
    repo = make_repository(daemon_box, "kept", {**tests, ".gitignore": ".env\n"})
    (repo / ".env").write_text("A=1\n")
    (repo / "agent-orchestrator.yaml").write_text(COMMENTED_CONFIG)
    daemon_box.ao("init", cwd=repo)
    assert read_config(repo) == COMMENTED_CONFIG, "nothing is written without a yes"
    daemon_box.ao("init", "--yes", cwd=repo)
    expected = COMMENTED_CONFIG.replace(
        "    # the tests\n", "    postCreate: [python3 -m venv .venv]\n    # the tests\n"
    )
    assert sorted(read_config(repo).splitlines()) == sorted(expected.splitlines())
    keys = re.findall(r"^    (\w+):", read_config(repo), re.MULTILINE)
    assert keys == ["path", "copy", "postCreate", "ci"]


def test_drift_between_configuration_and_files_is_reported(daemon_box: Sandbox) -> None:
    test = {"package.json": json.dumps({"name": "x", "scripts": {"test": "node --test"}}), "test/a.test.js": ""}
    repo = make_repository(daemon_box, "drifted", {**test, "package-lock.json": '{"lockfileVersion": 3}'})
    (repo / "agent-orchestrator.yaml").write_text(
        "projects: {drifted: {path: ., postCreate: [npm ci], ci: {command: echo 1 passed}}}\n"
    )
    daemon_box.ao("status", cwd=repo)
    assert drift_detail(daemon_box, "drifted") == ""
    (repo / "package-lock.json").unlink()
    (repo / "pnpm-lock.yaml").write_text("lockfileVersion: '9.0'\n")
    commit(daemon_box, repo)
    assert "npm ci" in drift_detail(daemon_box, "drifted") and "pnpm install --frozen-lockfile" in drift_detail(
        daemon_box, "drifted"
    )
    daemon_box.ao("config", "set", "projects.drifted.postCreate", "[]", cwd=repo)
    assert "postCreate is empty" in drift_detail(daemon_box, "drifted")
    done = daemon_box.ao("init", "--check", cwd=repo)
    assert "differs: postCreate is empty" in done.stdout and "pnpm install" in done.stdout


def drift_detail(box: Sandbox, project: str) -> str:
    """Return the warning of `ao doctor` about a project's set-up, or "" if there is none."""
    warnings = [
        check for check in box.request("GET", "/api/doctor")["checks"] if check["name"] == f"set-up of {project}"
    ]
    assert all(check["state"] == "warning" and "ao init --check" in check["remedy"] for check in warnings)
    return warnings[0]["detail"] if warnings else ""


def test_each_check_repeats_the_set_up_from_scratch(daemon_box: Sandbox) -> None:
    count = daemon_box.folder / "set-ups"
    repo = make_repository(daemon_box, "anew", {"a.txt": ""})
    (repo / "agent-orchestrator.yaml").write_text(
        f"projects: {{anew: {{path: ., postCreate: [echo x >> {count}, touch made], ci: {{command: test -e made}}}}}}\n"
    )
    for number in (1, 2):
        assert re.match(r"set-up [\d.]+ s; passes, ", daemon_box.ao("init", "--check", cwd=repo).stdout)
        assert count.read_text() == "x\n" * number
    nothing = make_repository(daemon_box, "nothing", {"a.txt": ""})
    (nothing / "agent-orchestrator.yaml").write_text("projects: {nothing: {path: .}}\n")
    assert_refused(
        daemon_box.ao("init", "--check", cwd=nothing, check=False), 3, "neither postCreate nor ci", "ao config set"
    )


# -- git status --------------------------------------------------------------------------------------------------------

POST_CREATE = "postCreate: ['mkdir -p .venv node_modules app.egg-info tests/__pycache__ docs', 'for f in .venv node_modules app.egg-info"
POST_CREATE += " tests/__pycache__ docs; do touch $f/made; done', 'touch package-lock.json vendored/package-lock.json']"


@pytest.mark.parametrize("kind", ["worktree", "clone"])
def test_files_that_a_set_up_made_are_hidden_from_git_status(daemon_box: Sandbox, kind: str) -> None:
    repo = make_repository(
        daemon_box, f"clean-{kind}", {"a.txt": "", "vendored/node_modules/kept.js": "1\n", "tests/t.py": ""}
    )
    (repo / "agent-orchestrator.yaml").write_text(
        f"projects: {{clean-{kind}: {{path: ., workspace: {kind}, {POST_CREATE}}}}}\n"
    )
    created = json.loads(daemon_box.ao("new", "[[done: ok]]", "--name", "s", "--json", cwd=repo).stdout)
    workspace = Path(daemon_box.session(created["id"])["workspacePath"])
    assert daemon_box.git("status", "--porcelain", cwd=workspace) == "?? docs/", (
        "what an agent could have made is shown"
    )
    (workspace / "docs" / "package-lock.json").write_text("{}\n")
    assert "package-lock.json" in daemon_box.git("status", "--porcelain", "-uall", cwd=workspace), (
        "only what a set-up made is hidden"
    )
    (workspace / "vendored" / "node_modules" / "fresh.js").write_text("2\n")
    assert "?? vendored/node_modules/fresh.js" in daemon_box.git("status", "--porcelain", cwd=workspace)
    (workspace / ".venv.txt").write_text("mine\n")
    assert "?? .venv.txt" in daemon_box.git("status", "--porcelain", cwd=workspace)
