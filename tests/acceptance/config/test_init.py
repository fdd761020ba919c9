"""`ao init` as a person uses it: what is detected is shown, asked about, proven in a clean checkout, and written."""

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
from tests.acceptance.config.dialogue import CTRL_C, talk

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
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One daemon for all tests of this page; each has a repository of its own."""
    with Sandbox(tmp_path_factory.mktemp("house"), "process") as box:
        box.repo = box.folder
        box.home.path.mkdir()
        box.home.config.write_text("defaults: {agent: demo, runtime: process}\n")
        box.start()
        yield box


def make(box: Sandbox, name: str, files: Mapping[str, str]) -> Path:
    """A repository with these files committed, and without a configuration."""
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


def config(repo: Path) -> str:
    return (repo / "agent-orchestrator.yaml").read_text()


# -- the dialogue ------------------------------------------------------------------------------------------------------


def test_it_shows_asks_proves_and_writes(house: Sandbox) -> None:
    tests = {"tests/__init__.py": "", "tests/test_sums.py": PASSING}
    repo = make(house, "shown", tests)
    ended = talk(house, "init", answers={QUESTION: "\n"}, cwd=repo)
    assert ended.code == 0, ended.text
    before, _, after = ended.text.partition(QUESTION)
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
    assert "postCreate: [python3 -m venv .venv]" in config(repo) and "unittest" in config(repo)
    head = house.git("rev-parse", "main^{tree}", cwd=repo)
    known = json.loads((house.home.path / "checks" / "results" / "shown" / head / "default.json").read_text())
    assert known["result"]["state"] == "success", "the base's result is known when the first session is checked"
    made = json.loads(house.ao("new", "[[write: a.txt|a]] [[commit: Add a]] [[done: ok]]", "--json", cwd=repo).stdout)
    house.until(lambda: checks(house, made["id"]) == ["success"], "its check")
    workspace = Path(house.session(made["id"])["workspacePath"])
    assert (workspace / ".venv").is_dir()
    assert house.git("status", "--porcelain", cwd=workspace) == ""
    assert house.git("status", "--porcelain", cwd=repo) == "?? agent-orchestrator.yaml"


def checks(box: Sandbox, session: str) -> list[str]:
    """The states of a session's checks; none before it has a pull request."""
    with contextlib.suppress(NotFound):
        return [one["state"] for one in box.request("GET", f"/api/sessions/{session}/review")["checks"]]
    return []


def test_no_is_no(house: Sandbox) -> None:
    repo = make(house, "refused", {"Makefile": f"test:\n\ttouch {house.folder}/refused-ran\n"})
    ended = talk(house, "init", answers={QUESTION: "n\n"}, cwd=repo)
    assert (
        ended.code == 0
        and "Nothing was run. To trust these commands and prove them: ao init --check --yes" in ended.text
    )
    assert "make test" in config(repo)
    assert not (house.folder / "refused-ran").exists()
    again = talk(house, "init", "--check", answers={QUESTION: "n\n"}, cwd=repo)
    assert again.code == 1 and "not trusted" in again.text
    assert not (house.folder / "refused-ran").exists()
    talk(house, "init", "--check", answers={QUESTION: "\n"}, cwd=repo)
    assert (house.folder / "refused-ran").exists()


def test_a_red_base_with_a_working_set_up_is_proven(house: Sandbox) -> None:
    repo = make(house, "red", {"Makefile": MAKEFILE, "sums.py": FAILING})
    ended = house.ao("init", "--yes", cwd=repo)
    assert re.search(
        r"^1 passed, 1 failed on main, [\d.]+ s$|; 1 passed, 1 failed on main, ", ended.stdout, re.MULTILINE
    )
    proof = json.loads(house.ao("init", "--check", "--json", cwd=repo).stdout)
    assert (proof["proven"], proof["base"]) == (True, "main")
    assert [(one["state"], one["passed"], one["failed"]) for one in proof["checks"]] == [("failure", 1, 1)]


@needs_npm
def test_a_way_under_which_no_test_passes_is_not_proven(house: Sandbox) -> None:
    broken = PASSING.replace(
        "    def test_one", "    def setUp(self): raise ValueError('not configured')\n\n    def test_one"
    )
    repo = make(house, "none-passes", {"Makefile": MAKEFILE, "sums.py": broken})
    shown = house.ao("init", "--yes", cwd=repo, check=False)
    assert (
        shown.returncode == 1 and "none of 2 tests passes (ValueError: not configured)" in shown.stdout + shown.stderr
    )


def test_what_does_not_work_is_followed_by_what_was_detected_next(house: Sandbox) -> None:
    package = {"name": "next", "scripts": {"test": "node --test"}, "dependencies": {"left": "file:left"}}
    lock = {"name": "next", "lockfileVersion": 3, "packages": {"": {"name": "next"}}}  # `npm ci` wants them to agree
    test = "const test = require('node:test'); require('left'); test('one', () => {});\n"
    left = {"left/package.json": '{"name": "left", "version": "1.0.0"}', "left/index.js": ""}
    files = {
        "package.json": json.dumps(package),
        "package-lock.json": json.dumps(lock),
        "test/one.test.js": test,
        **left,
    }
    repo = make(house, "second", files)
    done = house.ao("init", "--yes", "--json", cwd=repo)
    proof = json.loads(done.stdout)["proof"]
    assert [(one["setUp"], one["proven"]) for one in proof["tried"]] == [(["npm ci"], False), (["npm install"], True)]
    assert "postCreate: [npm install]" in config(repo)


def test_what_cannot_be_proven_is_explained_and_written_all_the_same(house: Sandbox) -> None:
    repo = make(house, "broken", {"Makefile": "test:\n\tno-such-program --all\n"})
    done = house.ao("init", "--yes", cwd=repo, check=False)
    assert done.returncode == 1, done
    assert "Not proven: " in done.stdout and "tried make test: " in done.stdout
    assert "no-such-program" in done.stdout, "the last relevant lines are shown"
    for how in (
        "ao config set projects.broken.postCreate",
        "ao config set projects.broken.ci.command",
        "ao init --check",
    ):
        assert how in done.stdout
    assert "make test" in config(repo)
    house.ao("config", "set", "projects.broken.ci.command", "true", cwd=repo)
    assert house.ao("init", "--check", cwd=repo).stdout.startswith("passes, ")


def test_lint_that_fails_is_left_out_and_lint_that_passes_is_a_check(house: Sandbox) -> None:
    good = make(house, "tidy", {"Makefile": f"{MAKEFILE}lint:\n\ttrue\n", "sums.py": PASSING})
    assert re.search(r"test: 2 passed, [\d.]+ s; lint: passes", house.ao("init", "--yes", cwd=good).stdout)
    assert "lint: {command: make lint}" in config(good)
    bad = make(house, "untidy", {"Makefile": f"{MAKEFILE}lint:\n\tno-such-linter\n", "sums.py": PASSING})
    assert "left out: lint make lint: " in house.ao("init", "--yes", cwd=bad).stdout
    assert "lint: {command" not in config(bad)


def test_ctrl_c_ends_what_runs(house: Sandbox) -> None:
    mark = house.folder / "sleeps"
    repo = make(house, "long", {"Makefile": f"test:\n\techo $$PPID > {mark}; sleep 600\n"})
    ended = talk(house, "init", answers={QUESTION: "\n", "make test  1": CTRL_C}, cwd=repo)
    assert ended.code == 130 and "interrupted: nothing was proven" in ended.text
    house.until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists(), "the command to be ended")


# -- without a question ------------------------------------------------------------------------------------------------


def test_without_a_terminal_nothing_runs_before_trust(house: Sandbox) -> None:
    mark = house.folder / "careful-ran"
    repo = make(house, "careful", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    done = house.ao("init", cwd=repo)
    assert "Nothing was run. To trust these commands and prove them: ao init --check --yes" in done.stdout
    made = json.loads(house.ao("new", "[[write: a.txt|a]] [[commit: A]] [[done: ok]]", "--json", cwd=repo).stdout)
    house.until(
        lambda: "not_set_up" in checks(house, made["id"]) or "not confirmed" in str(house.session(made["id"])),
        "a refusal",
    )
    assert_refused(house.ao("init", "--check", cwd=repo, check=False), 1, "not trusted", "ao init --check --yes")
    house.stop()
    house.start()
    assert_refused(house.ao("init", "--check", cwd=repo, check=False), 1, "not trusted")
    assert not mark.exists()
    house.ao("init", "--check", "--yes", cwd=repo)
    assert mark.exists()
    house.ao("checks", made["id"], "--run", cwd=repo)
    house.until(lambda: checks(house, made["id"]) == ["success"], "its check, once it is trusted")


def test_commands_that_the_user_writes_himself_are_his_own(house: Sandbox) -> None:
    repo = make(house, "edited", {"Makefile": "test:\n\tfalse\n"})
    house.ao("init", cwd=repo)
    (repo / "agent-orchestrator.yaml").write_text(config(repo).replace("make test", "true"))
    assert house.ao("init", "--check", cwd=repo).stdout.startswith("passes, ")


def test_yes_without_proof_trusts_and_runs_nothing(house: Sandbox) -> None:
    mark = house.folder / "hasty-ran"
    repo = make(house, "hasty", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    done = house.ao("init", "--yes", "--no-prove", cwd=repo)
    assert "Nothing was run. To prove these commands: ao init --check" in done.stdout and not mark.exists()
    house.ao("init", "--check", cwd=repo)
    assert mark.exists()


def test_nothing_runs_after_a_clone_before_trust(house: Sandbox) -> None:
    mark = house.folder / "cloned-ran"
    theirs = make(house, "theirs", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    here = house.folder / "clones"
    here.mkdir()
    for command in (["start", "--no-open"], ["add-project"]):
        ended = talk(house, *command, theirs.as_uri(), cwd=here)
        assert ended.code == 0 and QUESTION not in ended.text, ended.text
    assert "make test" in config(here / "theirs") and not mark.exists()
    assert_refused(house.ao("init", "--check", cwd=here / "theirs", check=False), 1, "not trusted")
    house.ao("trust", "--yes", cwd=here / "theirs")
    house.ao("init", "--check", cwd=here / "theirs")
    assert mark.exists()


def test_start_asks_on_first_use_alone(house: Sandbox) -> None:
    repo = make(house, "started", {"Makefile": MAKEFILE, "sums.py": PASSING})
    ended = talk(house, "start", "--no-open", str(repo), answers={QUESTION: "\n"})
    assert ended.code == 0 and "2 passed" in ended.text
    again = talk(house, "start", "--no-open", str(repo))
    assert again.code == 0 and QUESTION not in again.text


def test_start_proves_without_asking_or_runs_nothing(house: Sandbox) -> None:
    repo = make(house, "yes", {"Makefile": MAKEFILE, "sums.py": PASSING})
    assert "2 passed" in house.ao("start", "--no-open", "--yes", str(repo)).stdout
    assert house.ao("init", "--check", cwd=repo).stdout.startswith("2 passed")
    mark = house.folder / "start-ran"
    other = make(house, "unproven", {"Makefile": f"test:\n\ttouch {mark}; echo 1 passed\n"})
    shown = house.ao("start", "--no-open", "--yes", "--no-prove", str(other)).stdout
    assert "ci              make test" in shown and "Nothing was run." in shown and not mark.exists()


def test_the_dashboards_button_trusts_and_proves_what_it_shows(house: Sandbox) -> None:
    repo = make(house, "clicked", {"Makefile": MAKEFILE, "sums.py": PASSING})
    added = house.request("POST", "/api/projects", {"path": str(repo), "init": True})
    assert [one["test"] for one in added["proposal"]["candidates"]] == ["make test"] and added["trusted"] is False
    (repo / "Makefile").write_text(f"check:\n\ttrue\n{MAKEFILE.replace('test:', 'tests:')}")
    stale = prove(house, added["id"], added["proposal"]["digest"])[-1]
    assert "changed since it was shown" in stale["problem"]["detail"]
    (repo / "Makefile").write_text(MAKEFILE)
    lines = prove(house, added["id"], added["proposal"]["digest"])
    assert lines[-1]["proof"]["checks"][0]["passed"] == 2
    [listed] = [one for one in house.request("GET", "/api/projects")["projects"] if one["id"] == added["id"]]
    assert listed["trusted"] is True


def prove(box: Sandbox, project: str, digest: str) -> list[dict[str, Any]]:
    with (
        box.client() as client,
        client.stream("POST", f"/api/projects/{project}/prove", {"detected": digest}) as stream,
    ):
        return [json.loads(line) for line in iter(stream.line, None)]


# -- a configuration that is there -------------------------------------------------------------------------------------

MINE = """\
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


def test_missing_keys_are_added_in_their_place_and_comments_stay(house: Sandbox) -> None:
    tests = {
        "tests/__init__.py": "",
        "tests/test_sums.py": PASSING,
        "Makefile": "test:\n\tpython3 -m unittest -v tests.test_sums\n",
    }
    repo = make(house, "kept", {**tests, ".gitignore": ".env\n"})
    (repo / ".env").write_text("A=1\n")
    (repo / "agent-orchestrator.yaml").write_text(MINE)
    house.ao("init", cwd=repo)
    assert config(repo) == MINE, "nothing is written without a yes"
    house.ao("init", "--yes", cwd=repo)
    wanted = MINE.replace("    # the tests\n", "    postCreate: [python3 -m venv .venv]\n    # the tests\n")
    assert sorted(config(repo).splitlines()) == sorted(wanted.splitlines())
    keys = re.findall(r"^    (\w+):", config(repo), re.MULTILINE)
    assert keys == ["path", "copy", "postCreate", "ci"]


def test_drift_between_configuration_and_files_is_told(house: Sandbox) -> None:
    test = {"package.json": json.dumps({"name": "x", "scripts": {"test": "node --test"}}), "test/a.test.js": ""}
    repo = make(house, "drifted", {**test, "package-lock.json": '{"lockfileVersion": 3}'})
    (repo / "agent-orchestrator.yaml").write_text(
        "projects: {drifted: {path: ., postCreate: [npm ci], ci: {command: echo 1 passed}}}\n"
    )
    house.ao("status", cwd=repo)
    assert drift(house, "drifted") == ""
    (repo / "package-lock.json").unlink()
    (repo / "pnpm-lock.yaml").write_text("lockfileVersion: '9.0'\n")
    commit(house, repo)
    assert "npm ci" in drift(house, "drifted") and "pnpm install --frozen-lockfile" in drift(house, "drifted")
    house.ao("config", "set", "projects.drifted.postCreate", "[]", cwd=repo)
    assert "postCreate is empty" in drift(house, "drifted")
    done = house.ao("init", "--check", cwd=repo)
    assert "differs: postCreate is empty" in done.stdout and "pnpm install" in done.stdout


def drift(box: Sandbox, project: str) -> str:
    """What `ao doctor` says of a project's set-up."""
    found = [one for one in box.request("GET", "/api/doctor")["checks"] if one["name"] == f"set-up of {project}"]
    assert all(one["state"] == "warning" and "ao init --check" in one["remedy"] for one in found)
    return found[0]["detail"] if found else ""


def test_the_set_up_is_made_from_scratch_each_time(house: Sandbox) -> None:
    count = house.folder / "set-ups"
    repo = make(house, "anew", {"a.txt": ""})
    (repo / "agent-orchestrator.yaml").write_text(
        f"projects: {{anew: {{path: ., postCreate: [echo x >> {count}, touch made], ci: {{command: test -e made}}}}}}\n"
    )
    for number in (1, 2):
        assert re.match(r"set-up [\d.]+ s; passes, ", house.ao("init", "--check", cwd=repo).stdout)
        assert count.read_text() == "x\n" * number
    nothing = make(house, "nothing", {"a.txt": ""})
    (nothing / "agent-orchestrator.yaml").write_text("projects: {nothing: {path: .}}\n")
    assert_refused(
        house.ao("init", "--check", cwd=nothing, check=False), 3, "neither postCreate nor ci", "ao config set"
    )


# -- git status --------------------------------------------------------------------------------------------------------

LEAVES = "postCreate: ['mkdir -p .venv node_modules app.egg-info tests/__pycache__ docs', 'for f in .venv node_modules app.egg-info"
LEAVES += " tests/__pycache__ docs; do touch $f/made; done', 'touch package-lock.json vendored/package-lock.json']"


@pytest.mark.parametrize("kind", ["worktree", "clone"])
def test_a_set_up_leaves_git_status_clean_of_what_only_tools_make(house: Sandbox, kind: str) -> None:
    repo = make(house, f"clean-{kind}", {"a.txt": "", "vendored/node_modules/kept.js": "1\n", "tests/t.py": ""})
    (repo / "agent-orchestrator.yaml").write_text(
        f"projects: {{clean-{kind}: {{path: ., workspace: {kind}, {LEAVES}}}}}\n"
    )
    made = json.loads(house.ao("new", "[[done: ok]]", "--name", "s", "--json", cwd=repo).stdout)
    workspace = Path(house.session(made["id"])["workspacePath"])
    assert house.git("status", "--porcelain", cwd=workspace) == "?? docs/", "what an agent could have made is shown"
    (workspace / "docs" / "package-lock.json").write_text("{}\n")
    assert "package-lock.json" in house.git("status", "--porcelain", "-uall", cwd=workspace), (
        "only what a set-up made is hidden"
    )
    (workspace / "vendored" / "node_modules" / "fresh.js").write_text("2\n")
    assert "?? vendored/node_modules/fresh.js" in house.git("status", "--porcelain", cwd=workspace)
    (workspace / ".venv.txt").write_text("mine\n")
    assert "?? .venv.txt" in house.git("status", "--porcelain", cwd=workspace)
