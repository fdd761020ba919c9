"""Importing configurations of other orchestrators: each key is mapped or reported as dropped, and the result loads."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.importers import ImportedConfig, ImportResult, merge_import, read_import
from agent_orchestrator.config.load import load_text
from agent_orchestrator.config.projects.configuration_commands import ConfigurationCommands
from agent_orchestrator.config.projects.projects import CommandContext
from agent_orchestrator.config.trust import TrustContext
from agent_orchestrator.errors import AoError, ConfigError, Conflict, Denied, UsageError

SOURCE, FOLDER = Path("/nowhere/old"), Path("/nowhere/repo")
TARGET = FOLDER / "agent-orchestrator.yaml"

SAMPLES = Path(__file__).parents[3] / "samples"

TYPESCRIPT = """\
dataDir: ~/.ao
worktreeDir: ~/.worktrees
port: 3000
readyThresholdMs: 300000
defaults:
  runtime: tmux
  agent: claude-code
  worker: {agent: codex}
projects:
  my-app:
    repo: org/my-app
    path: .
    session_prefix: app
    tracker: linear
    agentConfig: {permissions: skip, model: opus, orchestratorModel: sonnet}
    frobnicate: yes
    ci: {command: make test, parallel: many}
reactions:
  - trigger: ci-failed
    prompt: "Mend it: {{errors}}"
    maxRetries: 3
notifiers:
  slack: {plugin: slack, webhook: "${SLACK_WEBHOOK_URL}"}
"""
GO = """\
{"project": {"id": "web", "path": "/srv/web", "repo": "org/web", "config": {"defaultBranch": "auto",
 "agentConfig": {"model": "opus", "permissions": "accept-edits"}, "postCreate": ["make"],
 "worker": {"agent": "codex"}, "orchestrator": {"agent": "claude-code"},
 "reviewers": [{"harness": "codex"}, {"harness": "opencode"}],
 "trackerIntake": {"enabled": true, "provider": "gitlab"}, "containerReap": {"disabled": true}}}}
"""
SQUAD = """\
{"default_program": "/opt/bin/aider --model ollama/gemma --no-git", "auto_yes": true, "daemon_poll_interval": 1000,
 "branch_prefix": "me/", "profiles": [{"name": "Mine", "program": "my-cli --fast"}, {"name": "c", "program": "claude"}]}
"""
PROFILE = """\
---
name: Code Reviewer
description: Judges changes
role: reviewer
provider: claude_code
model: opus
skills: [python]
permissionMode: bypassPermissions
allowedTools: ["*"]
---

Be kind.

Be short.
"""
KANBAN = """\
{"executors": {"CLAUDE_CODE": {"DEFAULT": {"CLAUDE_CODE": {"dangerously_skip_permissions": true}},
  "PLAN": {"CLAUDE_CODE": {"plan": true, "append_prompt": "Think"}}},
 "GEMINI": {"FLASH": {"GEMINI": {"model": "flash", "yolo": false}}},
 "MISTRAL_VIBE": {"DEFAULT": {"MISTRAL_VIBE": {"auto_approve": true}}}}}
"""


def bring_text(text: str, name: str = "agent-orchestrator.yaml") -> ImportedConfig:
    return read_import(text, SOURCE / name, FOLDER)


def merge_text(text: str, own: str = "", name: str = "agent-orchestrator.yaml", **options: Any) -> ImportResult:
    return merge_import(
        bring_text(text, name), own, TARGET, {"SLACK_WEBHOOK_URL": "https://hooks.example/x"}, **options
    )


def outcomes_by_key(result: ImportResult) -> dict[str, tuple[str, str]]:
    return {entry.key: (entry.outcome, entry.to) for entry in result.entries}


def test_typescript_reports_the_outcome_of_every_key() -> None:
    result = merge_text(TYPESCRIPT)
    project = "projects.my-app"
    assert outcomes_by_key(result) == {
        "dataDir": ("dropped", ""),
        "worktreeDir": ("changed", f"{project}.worktreeDir"),
        "port": ("taken", "port"),
        "readyThresholdMs": ("dropped", ""),
        "defaults.runtime": ("taken", "defaults.runtime"),
        "defaults.agent": ("dropped", ""),
        "defaults.worker.agent": ("changed", "defaults.agent"),
        f"{project}.repo": ("taken", f"{project}.repo"),
        f"{project}.path": ("changed", f"{project}.path"),
        f"{project}.session_prefix": ("changed", f"{project}.sessionPrefix"),
        f"{project}.tracker": ("changed", f"{project}.tracker.plugin"),
        f"{project}.agentConfig.permissions": ("changed", f"{project}.agentConfig.permissions"),
        f"{project}.agentConfig.model": ("taken", f"{project}.agentConfig.model"),
        f"{project}.agentConfig.orchestratorModel": ("changed", f"{project}.coordinator.model"),
        f"{project}.frobnicate": ("dropped", ""),
        f"{project}.ci.command": ("changed", f"{project}.ci.default.command"),
        f"{project}.ci.parallel": ("dropped", ""),
        "reactions.0.trigger": ("changed", "reactions.ci-failed.trigger"),
        "reactions.0.prompt": ("changed", "reactions.ci-failed.message"),
        "reactions.0.maxRetries": ("changed", "reactions.ci-failed.retries"),
        "notifiers.slack.plugin": ("taken", "notifiers.slack.plugin"),
        "notifiers.slack.webhook": ("changed", "notifiers.slack.webhookUrl"),
    }
    assert all(entry.note for entry in result.entries if entry.outcome == "dropped")


def test_the_result_for_typescript_takes_effect() -> None:
    result = merge_text(TYPESCRIPT)
    config = load_text(result.text, TARGET, {"SLACK_WEBHOOK_URL": "https://hooks.example/x"}).config
    project = config.projects["my-app"]
    assert (config.defaults.agent, project.path, project.worktree_dir) == ("codex", str(SOURCE), "~/.worktrees")
    assert (project.agent_config.permissions, project.coordinator.model) == ("full", "sonnet")
    assert config.reactions["ci-failed"].retries == 3
    assert "${SLACK_WEBHOOK_URL}" in result.text, "a variable stays one"
    assert "hooks.example" not in result.text


@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_file_that_already_loads_loses_no_key(file: Path) -> None:
    imported = read_import(file.read_text(), file, file.parent)
    assert {entry.key for entry in imported.entries if entry.outcome == "dropped"} <= {"$schema"}
    assert all(entry.to for entry in imported.entries if entry.outcome != "dropped")
    environ = {"SLACK_WEBHOOK_URL": "https://hooks.example/x"}
    outcome = merge_import(imported, "", file, environ).text
    assert load_text(outcome, file, environ).config == load_text(file.read_text(), file, environ).config


def test_paths_are_rewritten_for_the_new_location() -> None:
    text = "projects: {a: {path: ../repo}, b: {path: b}, c: {path: ~/c}, d: {path: /d}}\nplugins: [{path: x.py}]\n"
    imported_config = bring_text(text).config
    paths = {name: project["path"] for name, project in imported_config["projects"].items()}
    assert paths == {"a": ".", "b": f"{SOURCE}/b", "c": "~/c", "d": "/d"}
    assert imported_config["plugins"] == [{"path": f"{SOURCE}/x.py"}]


def test_a_project_of_the_go_daemon_is_imported() -> None:
    result = merge_text(GO, name="web.json")
    assert load_text(result.text, TARGET, {}).config.projects["web"].agent == "codex"
    assert outcomes_by_key(result) == {
        "project.id": ("changed", "projects.web"),
        "project.path": ("changed", "projects.web.path"),
        "project.repo": ("changed", "projects.web.repo"),
        "project.config.defaultBranch": ("dropped", ""),
        "project.config.agentConfig.model": ("changed", "projects.web.agentConfig.model"),
        "project.config.agentConfig.permissions": ("changed", "projects.web.agentConfig.permissions"),
        "project.config.postCreate": ("changed", "projects.web.postCreate"),
        "project.config.worker.agent": ("changed", "projects.web.agent"),
        "project.config.orchestrator.agent": ("changed", "projects.web.coordinator.agent"),
        "project.config.reviewers.0.harness": ("changed", "agents.reviewer.tool"),
        "project.config.reviewers.1.harness": ("dropped", ""),
        "project.config.trackerIntake.enabled": ("dropped", ""),
        "project.config.trackerIntake.provider": ("changed", "projects.web.tracker.plugin"),
        "project.config.containerReap.disabled": ("dropped", ""),
    }


def test_claude_squad_is_imported() -> None:
    imported = bring_text(SQUAD, "config.json")
    assert imported.config == {
        "defaults": {"agent": "aider", "agentConfig": {"model": "ollama/gemma", "permissions": "auto-edit"}},
        "project": {"branchPattern": "me/{{name}}"},
        "agents": {"mine": {"command": ["my-cli", "--fast"], "prompt": "paste"}, "c": {"tool": "claude-code"}},
    }
    dropped = {entry.key: entry.note for entry in imported.entries if entry.outcome == "dropped"}
    assert set(dropped) == {"default_program", "daemon_poll_interval"}
    assert "--no-git" in dropped["default_program"]


def test_a_markdown_profile_is_imported() -> None:
    imported = bring_text(PROFILE, "reviewer.md")
    assert imported.config == {
        "agents": {
            "code-reviewer": {
                "role": "reviewer",
                "tool": "claude-code",
                "model": "opus",
                "skills": ["python"],
                "permissions": "auto-edit",
                "rules": "Be kind.\n\nBe short.",
            }
        }
    }
    assert {entry.key for entry in imported.entries if entry.outcome == "dropped"} == {"description", "allowedTools"}


def test_vibe_kanban_is_imported() -> None:
    imported = bring_text(KANBAN, "profiles.json")
    assert imported.config == {
        "agents": {
            "claude-code": {"permissions": "auto-edit", "tool": "claude-code"},
            "claude-code-plan": {"permissions": "plan", "rules": "Think", "tool": "claude-code"},
            "gemini-flash": {"model": "flash", "tool": "gemini"},
        }
    }
    assert "executors.MISTRAL_VIBE" in {entry.key for entry in imported.entries if entry.outcome == "dropped"}


@pytest.mark.parametrize(
    ("text", "name"),
    [(TYPESCRIPT, "a.yaml"), (GO, "a.json"), (SQUAD, "a.json"), (PROFILE, "a.md"), (KANBAN, "a.json")],
)
@pytest.mark.parametrize("own", ["", "projects: {mine: {path: .}}\n", "# only words\n", "project: {name: Mine}\n"])
def test_every_import_results_in_a_file_that_loads(text: str, name: str, own: str) -> None:
    result = merge_text(text, own, name)
    load_text(result.text, TARGET, {"SLACK_WEBHOOK_URL": "x"})
    assert all(entry.outcome in ("taken", "changed", "dropped", "kept") for entry in result.entries)
    second = merge_text(text, result.text, name)
    assert second.text == result.text, "a second import changes nothing"


VALUE = re.compile(r":\s*([^\s,{}\[\]]+)")
ODD_FILE = (
    "null",
    "[]",
    "{}",
    "1",
    "true",
    "''",
    "[1, {a: b}]",
    "{a: {b: [c]}}",
    "${X}",
    "&a *a",
    "- x",
    "9" * 30,
    "é🚀",
    "",
)


@given(st.data())
def test_odd_values_are_refused_or_dropped_without_a_crash(data: st.DataObject) -> None:
    text, name = data.draw(
        st.sampled_from(
            [(TYPESCRIPT, "a.yaml"), (GO, "a.json"), (SQUAD, "a.json"), (PROFILE, "a.md"), (KANBAN, "a.json")]
        )
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = data.draw(st.sampled_from([result.span(1) for result in VALUE.finditer(text)]))
        text = text[:start] + data.draw(st.sampled_from(ODD_FILE)) + text[end:]
    try:
        result = merge_text(text, data.draw(st.sampled_from(["", OWN, "project: {name: x}\n"])), name)
    except AoError as error:
        assert "Traceback" not in str(error)
    else:
        load_text(result.text, TARGET, {"SLACK_WEBHOOK_URL": "x"})


OWN = "# mine\ndefaults: {agent: demo}   # the demo\nprojects:\n  app:\n    path: .   # here\n"


def test_existing_values_and_comments_of_the_target_stay() -> None:
    result = merge_text(SQUAD, OWN, "config.json")
    config = load_text(result.text, TARGET, {}).config
    assert config.defaults.agent == "demo"
    assert config.projects["app"].branch_pattern == "me/{{name}}"
    assert all(word in result.text for word in ("# mine", "# the demo", "# here"))
    (kept_entry,) = [entry for entry in result.entries if entry.outcome == "kept"]
    assert (kept_entry.to, kept_entry.note) == ("defaults.agent", 'the file says "demo"')


def test_overwrite_replaces_existing_values() -> None:
    result = merge_text(SQUAD, OWN, "config.json", overwrite=True)
    assert load_text(result.text, TARGET, {}).config.defaults.agent == "aider"
    assert "kept" not in {entry.outcome for entry in result.entries}


def test_a_project_is_recognized_by_its_folder() -> None:
    text = f"projects: {{other: {{path: {FOLDER}, sessionPrefix: o}}}}\n"
    result = merge_text(text, OWN)
    projects = load_text(result.text, TARGET, {}).config.projects
    assert list(projects) == ["app"]
    assert projects["app"].session_prefix == "o"
    assert outcomes_by_key(result)["projects.other.sessionPrefix"] == ("changed", "projects.app.sessionPrefix")


@pytest.mark.parametrize("text", ["", "hello: world\n", '{"a": 1}', "[1, 2]", "---\n---\n"])
def test_an_unknown_format_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        bring_text(text)


def test_invalid_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"agent-orchestrator\.yaml:3: not valid YAML"):
        bring_text("defaults: {agent: x}\nprojects: [\n")


@pytest.mark.anyio
async def test_a_setting_of_the_daemon_names_the_file_where_it_counts(tmp_path: Path) -> None:
    own = Home(tmp_path / "ao")
    config = SimpleNamespace(
        own_files=(own.config, None), workspaces=tuple, trust_context=lambda _: TrustContext(tmp_path)
    )
    projects: Any = SimpleNamespace(config=config)
    text = "port: 4000\nprojects: {app: {path: /r, defaultBranch: main}}\n"

    async def notes(output: Path) -> dict[str, str]:
        result = await ConfigurationCommands(own, projects).import_file(
            "other.yaml", text, CommandContext(tmp_path), output=str(output), replace=False, dry_run=True
        )
        return {each["to"]: each["note"] for each in result["entries"]}

    assert (await notes(tmp_path / "agent-orchestrator.yaml"))["port"] == f"counts only in {own.config}"
    assert (await notes(own.config))["port"] == ""


# -- files that are not the user's own ----------------------------------------------------------------------------------

THEIRS = "readyThresholdMs: 5\nprojects: {app: {path: ., postCreate: ['touch X']}}\n"


class ImportingUser:
    """A repository and the configuration service of a user who imports into it."""

    def __init__(self, folder: Path) -> None:
        self.repo, self.home = folder / "repo", Home(folder / "ao")
        self.repo.mkdir()
        self.git("init", "-q")

        async def resolve(_context: CommandContext) -> None: ...

        config = SimpleNamespace(
            own_files=(self.home.config, None),
            workspaces=lambda: (self.repo / "trees",),
            trust_context=lambda loaded: TrustContext(loaded.path.parent),
        )
        projects: Any = SimpleNamespace(config=config, host=LocalHost(), resolve=resolve)
        self.configuration = ConfigurationCommands(self.home, projects)

    def git(self, *argv: str) -> None:
        subprocess.run(["git", "-C", str(self.repo), *argv], check=True)

    def write(self, name: str, text: str, *, tracked: bool = False) -> Path:
        file = self.repo / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        if tracked:
            self.git("add", name)
        return file

    @property
    def written(self) -> str:
        target = self.repo / "agent-orchestrator.yaml"
        return target.read_text() if target.exists() else ""

    async def bring(self, source: Path, text: str = THEIRS, digest: str = "", dry_run: bool = False) -> dict[str, Any]:
        context = CommandContext(self.repo)
        return await self.configuration.import_file(
            str(source), text, context, output=None, replace=False, dry_run=dry_run, shown_digest=digest
        )


@pytest.fixture
def user(tmp_path: Path) -> ImportingUser:
    return ImportingUser(tmp_path)


@pytest.mark.anyio
async def test_commands_from_a_repository_are_written_only_after_a_preview(user: ImportingUser) -> None:
    source = user.write("old.yaml", THEIRS, tracked=True)
    with pytest.raises(Denied, match=r"old\.yaml is not your own, .* read them by ao import --dry-run, then say --yes"):
        await user.bring(source)
    preview = await user.bring(source, dry_run=True)
    assert preview["commands"] == ["projects.app.postCreate: touch X"] and not user.written
    with pytest.raises(Conflict, match="changed since it was shown"):
        await user.bring(source, THEIRS.replace("touch", "rm"), preview["digest"])
    assert not user.written
    assert (await user.bring(source, digest=preview["digest"]))["written"] and "touch X" in user.written
    assert (await user.bring(source))["digest"] == ""  # which adds nothing to what was shown


@pytest.mark.anyio
async def test_commands_from_an_agent_a_pipe_or_named_code_need_a_preview_too(user: ImportingUser) -> None:
    with pytest.raises(Denied):
        await user.bring(user.write("trees/old.yaml", THEIRS))
    with pytest.raises(Denied):
        await user.bring(user.repo / "import.json")
    (user.repo / "link.yaml").symlink_to(user.write("old.yaml", THEIRS, tracked=True))
    with pytest.raises(Denied):
        await user.bring(user.repo / "link.yaml")
    named = "plugins: [./evil.py]\n" + THEIRS
    user.write("evil.py", "1\n")
    preview = await user.bring(user.repo / "old.yaml", named, dry_run=True)
    assert [line for line in preview["commands"] if line.endswith("evil.py: code")]
    user.write("evil.py", "2\n")
    with pytest.raises(Conflict, match="code that it would name, changed"):
        await user.bring(user.repo / "old.yaml", named, preview["digest"])
    assert not user.written


@pytest.mark.anyio
async def test_settings_of_the_daemon_are_previewed_too(user: ImportingUser) -> None:
    source = user.write("old.yaml", "", tracked=True)
    text = "database: postgresql://evil.example/all\ndefaults: {agent: codex}\n"
    preview = await user.bring(source, text, dry_run=True)
    assert preview["commands"] == ["database: postgresql://evil.example/all"] and preview["digest"]


@pytest.mark.anyio
async def test_the_users_own_file_and_harmless_keys_need_no_preview(user: ImportingUser) -> None:
    assert (await user.bring(user.write("old.yaml", "", tracked=True), "defaults: {agent: codex}\n"))["written"]
    result = await user.bring(user.write("own.yaml", THEIRS))
    assert result["written"] and result["digest"] == "" and result["commands"] == ["projects.app.postCreate: touch X"]
