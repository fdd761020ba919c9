"""Configuration in force: live reload, a broken file, trust, scope, removed projects, and files in workspaces."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused, send_and_wait

SAMPLES = Path(__file__).parents[2] / "samples"


def _repository(box: Sandbox, name: str, config: str | None = None) -> Path:
    first = box.repo
    try:
        return box.repository(name, config=config)
    finally:
        box.repo = first


def _json(box: Sandbox, *argv: str, cwd: Path) -> Any:
    return json.loads(box.ao(argv[0], "--json", *argv[1:], cwd=cwd).stdout)


def _write(repo: Path, text: str) -> None:
    (repo / "agent-orchestrator.yaml").write_text(text)


def _commit(box: Sandbox, repo: Path) -> None:
    box.git("add", "agent-orchestrator.yaml", cwd=repo)
    box.git("commit", "-q", "-m", "configuration", cwd=repo)


DEMO = "defaults: {agent: demo, runtime: process}\n"
WITH_COMMANDS = DEMO + "projects:\n  ID:\n    path: .\n    postCreate: [touch made-by-post-create]\n"


def test_a_project_of_the_daemons_start_file_survives_a_restart_without_it(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        file, elsewhere = box.repository() / "agent-orchestrator.yaml", {"X-AO-Cwd": str(tmp_path)}
        box.start("--config", str(file))
        created = box.request("POST", "/api/sessions", {"projectId": "app", "prompt": "[[sleep: 600]]"}, **elsewhere)
        box.stop(signal.SIGKILL)
        box.start()
        projects = box.request("GET", "/api/projects", **elsewhere)["projects"]
        assert [entry["id"] for entry in projects] == ["app"]
        box.wait_until(lambda: box.session(created["id"])["status"] == "working", "its agent at work")


def test_a_configuration_tracked_by_the_repository_needs_trust(shared: Sandbox) -> None:
    repo = _repository(shared, "foreign", WITH_COMMANDS.replace("ID", "foreign"))
    _commit(shared, repo)
    assert_refused(shared.ao("new", "[[wait]]", cwd=repo, check=False), 1, "agent-orchestrator.yaml", "ao trust")
    assert [entry for entry in shared.sessions() if entry["project"] == "foreign"] == []
    assert "touch made-by-post-create" in shared.ao("trust", cwd=repo).stdout
    created = _json(shared, "new", "[[wait]]", cwd=repo)
    assert (Path(created["workspacePath"]) / "made-by-post-create").exists()
    _write(repo, WITH_COMMANDS.replace("ID", "foreign").replace("touch", "touch  other"))
    _commit(shared, repo)
    assert_refused(shared.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")
    _write(repo, WITH_COMMANDS.replace("ID", "foreign") + "    sessionPrefix: f\n")
    _commit(shared, repo)
    assert _json(shared, "new", "[[wait]]", cwd=repo)["id"].startswith("f-")


def test_a_command_agent_of_a_tracked_configuration_needs_trust(shared: Sandbox) -> None:
    text = "defaults: {runtime: process}\nagents:\n  mine: {tool: command, command: [sh, -c, 'touch x']}\n"
    repo = _repository(shared, "foreign-agent", text)
    _commit(shared, repo)
    assert_refused(shared.ao("new", "x", "--agent", "mine", cwd=repo, check=False), 1, "ao trust")
    assert _json(shared, "new", "[[wait]]", "--agent", "demo", cwd=repo)["status"] in ("starting", "working", "idle")


def test_the_users_own_file_is_trusted_and_stays_trusted_when_committed(shared: Sandbox) -> None:
    repo = _repository(shared, "own", WITH_COMMANDS.replace("ID", "own"))
    assert _json(shared, "new", "[[wait]]", cwd=repo)["status"] != "failed"
    _commit(shared, repo)
    assert _json(shared, "new", "[[wait]]", cwd=repo)["status"] != "failed"


def test_a_changed_file_takes_effect_at_once(shared: Sandbox) -> None:
    repo = _repository(shared, "live", DEMO)
    assert _json(shared, "new", "--no-wait", "one", cwd=repo)["branch"] == "feature/one"
    _write(repo, DEMO + "projects:\n  live: {path: ., branchPattern: 'ao/{{name}}', sessionPrefix: lv}\n")
    created = _json(shared, "new", "--no-wait", "two", cwd=repo)
    assert (created["id"], created["branch"]) == ("lv-two", "ao/two")


def test_a_broken_file_leaves_the_last_good_one_in_force(shared: Sandbox) -> None:
    good = DEMO + "projects:\n  broken: {path: ., sessionPrefix: bk}\n"
    repo = _repository(shared, "broken", good)
    assert _json(shared, "new", "--no-wait", "one", cwd=repo)["id"] == "bk-one"
    _write(repo, good + "    nonsense: [\n")
    done = shared.ao("new", "--json", "--no-wait", "two", cwd=repo)
    assert json.loads(done.stdout)["id"] == "bk-two"
    assert "agent-orchestrator.yaml:" in done.stderr and "last good" in done.stderr
    assert "last good" not in shared.ao("status").stderr
    shared.wait_until(lambda: any(event["type"] == "configuration-broken" for event in shared.events()), "the event")
    _write(repo, good.replace("bk", "bb"))
    done = shared.ao("new", "--json", "--no-wait", "three", cwd=repo)
    assert (json.loads(done.stdout)["id"], done.stderr) == ("bb-three", "")


def test_nothing_is_started_or_merged_while_a_new_daemon_cannot_read_the_file(process_box: Sandbox) -> None:
    """The checks and sandboxes that the file demands are not known; once it is valid again, work continues."""
    good = DEMO + "projects:\n  app:\n    path: .\n    ci: {command: test ! -e bad.txt}\n"
    _write(process_box.repo, good)
    script = "[[write: bad.txt|x]] [[commit: bad]] [[done: bad]] [[wait]]"
    process_box.ao("new", script, "--name", "bad")
    process_box.ao("new", "[[wait]]", "--name", "idle")
    process_box.wait_until(lambda: process_box.session("bad")["status"] == "ci_failed", "its red check")
    process_box.ao("stop", "app-idle")
    process_box.stop()
    _write(process_box.repo, good + "projects: [\n")
    process_box.start()
    head = process_box.session("bad")["head"]
    process_box.ao("send", "app-bad", "[[edit: bad.txt|y]] [[commit: more]] [[done: more]] [[wait]]")
    process_box.wait_until(
        lambda: process_box.session("bad")["head"] != head and process_box.session("bad")["pr"], "another commit"
    )
    process_box.ao("review", "app-bad", "--approve")
    merged = process_box.ao("merge", "app-bad", check=False)
    assert merged.returncode == 1 and "did not land: nothing starts or lands in app" in merged.stderr
    assert "bad.txt" not in process_box.git("ls-tree", "--name-only", "main")
    with pytest.raises(AoError, match="nothing starts or lands in app"):
        body = {"projectId": "app", "name": "more", "prompt": "[[wait]]"}
        process_box.request("POST", "/api/sessions", body, **{"X-AO-Cwd": str(process_box.home.path)})
    process_box.ao("restore", "app-idle", check=False)
    process_box.wait_until(lambda: process_box.session("idle")["status"] == "failed", "its agent not to be started")
    _write(process_box.repo, good)
    process_box.wait_until(lambda: process_box.session("bad")["status"] == "ci_failed", "its red check again", 90)
    process_box.ao("restore", "app-idle")


def test_nothing_is_started_while_a_new_daemon_cannot_read_the_users_file(process_box: Sandbox) -> None:
    _write(process_box.repo, DEMO)
    process_box.ao("new", "[[wait]]", "--name", "first")
    process_box.stop()
    process_box.home.config.write_text("defaults: [\n")
    process_box.start()
    result = process_box.ao("new", "[[wait]]", "--name", "second", check=False)
    assert result.returncode == 1 and "nothing starts or lands in app" in result.stderr
    process_box.home.config.write_text("defaults: {runtime: process}\n")
    process_box.wait_until(
        lambda: process_box.ao("new", "[[wait]]", "--name", "second", check=False).returncode == 0, "the file to count"
    )


def test_running_sessions_survive_a_new_daemon_with_a_broken_file(process_box: Sandbox) -> None:
    good = DEMO + "projects:\n  app: {path: ., sessionPrefix: bk}\n"
    _write(process_box.repo, good)
    assert process_box.json("new", "[[say: x]]", "--name", "w")["id"] == "bk-w"
    _write(process_box.repo, good + "    nonsense: [\n")
    process_box.stop(signal.SIGKILL)
    process_box.start()
    assert process_box.session("bk-w")["id"] == "bk-w"
    assert_refused(process_box.ao("new", "y", check=False), 2, "agent-orchestrator.yaml:")
    _write(process_box.repo, good)
    assert process_box.json("new", "[[wait]]", "--name", "z")["id"] == "bk-z"
    send_and_wait(process_box, "w", "[[say: y]]")


def test_a_file_in_a_workspace_is_never_read(shared: Sandbox) -> None:
    repo = _repository(shared, "inner", DEMO)
    created = _json(shared, "new", "[[wait]]", "--name", "w", cwd=repo)
    workspace = Path(created["workspacePath"])
    (workspace / "agent-orchestrator.yaml").write_text("this: is\nnot: [valid\n")
    for folder in (workspace, repo / ".worktrees" / "w"):
        done = shared.ao("new", "--json", "--no-wait", "from inside", cwd=folder)
        assert (json.loads(done.stdout)["project"], done.stderr) == ("inner", "")


def test_daemon_settings_count_only_in_the_users_file(shared: Sandbox) -> None:
    repo = _repository(shared, "ported", DEMO + "port: 4567\n")
    done = shared.ao("status", cwd=repo)
    assert "port" in done.stderr and "config.yaml" in done.stderr
    assert ":4567" not in json.loads(shared.home.daemon_info.read_text())["url"]


def test_an_ineffective_setting_is_warned_about_once_and_on_request(shared: Sandbox) -> None:
    repo = _repository(shared, "once", DEMO + "port: 4567\n")

    def shows_warning(*argv: str) -> bool:
        return "port counts only in" in shared.ao(*argv, cwd=repo).stderr

    shared.request("GET", "/api/agents", **{"X-AO-Cwd": str(repo)})  # by a program that does not show warnings
    assert [shows_warning("status"), shows_warning("status"), shows_warning("projects")] == [True, False, False]
    _write(repo, DEMO + "port: 4568\n")
    assert [shows_warning("projects"), shows_warning("status")] == [True, False]
    assert [shows_warning("start", "--no-open"), shows_warning("start", "--no-open"), shows_warning("status")] == [
        True,
        True,
        False,
    ]
    output = shared.ao("config", "validate", cwd=repo).stdout
    assert output.startswith("warning: ") and "port counts only in" in output
    checks = [check for check in _json(shared, "doctor", cwd=repo)["checks"] if check["name"] == "configuration"]
    assert [check["state"] for check in checks] == ["warning"] and "port counts only in" in checks[0]["detail"]
    _write(repo, DEMO)
    assert not shows_warning("status") and "port" not in shared.ao("config", "validate", cwd=repo).stdout


def test_a_removed_project_stays_removed(shared: Sandbox) -> None:
    repo = _repository(shared, "gone", DEMO)
    shared.ao("status", cwd=repo)
    assert "gone" in shared.ao("projects").stdout
    created = _json(shared, "new", "[[wait]]", cwd=repo)
    assert_refused(shared.ao("remove-project", "gone", check=False), 1, created["id"], "ao stop")
    shared.ao("stop", created["id"])
    shared.ao("remove-project", "gone")
    for command in (["status"], ["projects"]):
        shared.ao(*command, cwd=repo)
    assert "gone" not in {project["id"] for project in shared.json("projects")["projects"]}
    shared.ao("add-project", str(repo))
    assert "gone" in {project["id"] for project in shared.json("projects")["projects"]}


def test_the_variable_ao_config_names_the_file(shared: Sandbox) -> None:
    repo = _repository(shared, "elsewhere")
    (repo / "agent-orchestrator.yaml").unlink()
    file = shared.folder / "mine.yaml"
    file.write_text(DEMO + f"projects:\n  mine: {{path: {repo}, sessionPrefix: mn}}\n")
    shared.env["AO_CONFIG"] = str(file)
    try:
        assert _json(shared, "new", "--no-wait", "x", cwd=repo)["id"] == "mn-x"
    finally:
        del shared.env["AO_CONFIG"]


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_sample_loads(shared: Sandbox, sample: Path) -> None:
    repo = shared.folder / f"sample-{sample.stem}"
    repo.mkdir()
    shared.git("init", "-q", "-b", "main", cwd=repo)
    shared.git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    shutil.copy(sample, repo / "agent-orchestrator.yaml")
    for argv in (["config", "validate"], ["config", "validate", str(sample)], ["config", "validate", "--json"]):
        done = shared.ao(*argv, cwd=repo, check=False)
        assert done.returncode == 0, done
    done = shared.ao("projects", "--json", cwd=repo, check=False)
    assert done.returncode == 0, done


def test_get_and_set_keep_comments(shared: Sandbox) -> None:
    repo = _repository(shared, "set", "# mine\ndefaults:\n  agent: demo  # scripted\n  runtime: process\n")
    file = repo / "agent-orchestrator.yaml"
    assert shared.ao("config", "get", "defaults.agent", cwd=repo).stdout == "demo\n"
    shared.ao("config", "set", "orchestrator.maxParallelAgents", "2", cwd=repo)
    shared.ao("config", "set", "defaults.workspace", "clone", cwd=repo)
    text = file.read_text()
    assert text.startswith("# mine\n") and "# scripted" in text
    assert shared.ao("config", "get", "orchestrator.maxParallelAgents", cwd=repo).stdout == "2\n"
    assert shared.ao("config", "get", "defaults.workspace", cwd=repo).stdout == "clone\n"
    assert_refused(shared.ao("config", "set", "defaults.agnet", "demo", cwd=repo, check=False), 2, "agnet", "agent")
    assert_refused(shared.ao("config", "set", "port", "many", cwd=repo, check=False), 2, "port")
    assert shared.ao("config", "get", "no.such.key", cwd=repo, check=False).returncode in (2, 3)
    assert file.read_text() == text
    json.loads(shared.ao("config", "schema").stdout)
    assert "postCreate" in shared.ao("config-help").stdout


def test_agents_are_listed_by_project(shared: Sandbox) -> None:
    profiles = "agents:\n  careful: {tool: demo, role: reviewer}\n  lost: {tool: command, command: [no-such-program]}\n"
    repo = _repository(shared, "peopled", DEMO + profiles)
    shared.ao("add-project", str(repo))
    agents = {
        agent["name"]: agent
        for agent in shared.request("GET", "/api/agents")["agents"]
        if agent["project"] == "peopled"
    }
    careful, lost = agents.pop("careful"), agents.pop("lost")
    assert (careful["tool"], careful["role"], careful["found"], agents) == ("demo", "reviewer", True, {})
    assert (lost["tool"], lost["role"], lost["found"]) == ("command", "worker", False)
    claude = next(agent for agent in shared.request("GET", "/api/agents")["agents"] if agent["name"] == "claude-code")
    assert (claude["project"], claude["tool"], claude["role"]) == (None, "claude-code", None)
    assert _json(shared, "new", "[[wait]]", "--agent", "careful", cwd=repo)["project"] == "peopled"
