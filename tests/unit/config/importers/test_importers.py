"""Configurations of other orchestrators: what each key becomes, that none goes silently, and that what comes of it loads."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.importers import Brought, Merged, bring, merge
from agent_orchestrator.config.load import load_text
from agent_orchestrator.config.projects.projects import Context
from agent_orchestrator.config.projects.settings import Configuration
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


def brought(text: str, name: str = "agent-orchestrator.yaml") -> Brought:
    return bring(text, SOURCE / name, FOLDER)


def merged(text: str, own: str = "", name: str = "agent-orchestrator.yaml", **options: Any) -> Merged:
    return merge(brought(text, name), own, TARGET, {"SLACK_WEBHOOK_URL": "https://hooks.example/x"}, **options)


def outcomes(one: Merged) -> dict[str, tuple[str, str]]:
    return {entry.key: (entry.outcome, entry.to) for entry in one.entries}


def test_typescript_says_what_became_of_every_key() -> None:
    found = merged(TYPESCRIPT)
    project = "projects.my-app"
    assert outcomes(found) == {
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
    assert all(entry.note for entry in found.entries if entry.outcome == "dropped")


def test_what_comes_of_typescript_is_in_force() -> None:
    found = merged(TYPESCRIPT)
    config = load_text(found.text, TARGET, {"SLACK_WEBHOOK_URL": "https://hooks.example/x"}).config
    project = config.projects["my-app"]
    assert (config.defaults.agent, project.path, project.worktree_dir) == ("codex", str(SOURCE), "~/.worktrees")
    assert (project.agent_config.permissions, project.coordinator.model) == ("full", "sonnet")
    assert config.reactions["ci-failed"].retries == 3
    assert "${SLACK_WEBHOOK_URL}" in found.text, "a variable stays one"
    assert "hooks.example" not in found.text


@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_nothing_of_a_file_that_loads_as_it_is_goes(file: Path) -> None:
    found = bring(file.read_text(), file, file.parent)
    assert {entry.key for entry in found.entries if entry.outcome == "dropped"} <= {"$schema"}
    assert all(entry.to for entry in found.entries if entry.outcome != "dropped")
    environ = {"SLACK_WEBHOOK_URL": "https://hooks.example/x"}
    outcome = merge(found, "", file, environ).text
    assert load_text(outcome, file, environ).config == load_text(file.read_text(), file, environ).config


def test_paths_mean_the_same_from_where_the_file_is_to_lie() -> None:
    text = "projects: {a: {path: ../repo}, b: {path: b}, c: {path: ~/c}, d: {path: /d}}\nplugins: [{path: x.py}]\n"
    found = brought(text).config
    paths = {name: one["path"] for name, one in found["projects"].items()}
    assert paths == {"a": ".", "b": f"{SOURCE}/b", "c": "~/c", "d": "/d"}
    assert found["plugins"] == [{"path": f"{SOURCE}/x.py"}]


def test_a_project_of_the_go_daemon() -> None:
    found = merged(GO, name="web.json")
    assert load_text(found.text, TARGET, {}).config.projects["web"].agent == "codex"
    assert outcomes(found) == {
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


def test_claude_squad() -> None:
    found = brought(SQUAD, "config.json")
    assert found.config == {
        "defaults": {"agent": "aider", "agentConfig": {"model": "ollama/gemma", "permissions": "auto-edit"}},
        "project": {"branchPattern": "me/{{name}}"},
        "agents": {"mine": {"command": ["my-cli", "--fast"], "prompt": "paste"}, "c": {"tool": "claude-code"}},
    }
    dropped = {entry.key: entry.note for entry in found.entries if entry.outcome == "dropped"}
    assert set(dropped) == {"default_program", "daemon_poll_interval"}
    assert "--no-git" in dropped["default_program"]


def test_a_profile_in_markdown() -> None:
    found = brought(PROFILE, "reviewer.md")
    assert found.config == {
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
    assert {entry.key for entry in found.entries if entry.outcome == "dropped"} == {"description", "allowedTools"}


def test_vibe_kanban() -> None:
    found = brought(KANBAN, "profiles.json")
    assert found.config == {
        "agents": {
            "claude-code": {"permissions": "auto-edit", "tool": "claude-code"},
            "claude-code-plan": {"permissions": "plan", "rules": "Think", "tool": "claude-code"},
            "gemini-flash": {"model": "flash", "tool": "gemini"},
        }
    }
    assert "executors.MISTRAL_VIBE" in {entry.key for entry in found.entries if entry.outcome == "dropped"}


@pytest.mark.parametrize(
    ("text", "name"),
    [(TYPESCRIPT, "a.yaml"), (GO, "a.json"), (SQUAD, "a.json"), (PROFILE, "a.md"), (KANBAN, "a.json")],
)
@pytest.mark.parametrize("own", ["", "projects: {mine: {path: .}}\n", "# only words\n", "project: {name: Mine}\n"])
def test_whatever_is_brought_the_outcome_loads(text: str, name: str, own: str) -> None:
    found = merged(text, own, name)
    load_text(found.text, TARGET, {"SLACK_WEBHOOK_URL": "x"})
    assert all(entry.outcome in ("taken", "changed", "dropped", "kept") for entry in found.entries)
    again = merged(text, found.text, name)
    assert again.text == found.text, "brought twice it is the same"


VALUE = re.compile(r":\s*([^\s,{}\[\]]+)")
ODD = (
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
@settings(max_examples=300)
def test_odd_values_are_refused_or_dropped_and_nothing_breaks(data: st.DataObject) -> None:
    text, name = data.draw(
        st.sampled_from(
            [(TYPESCRIPT, "a.yaml"), (GO, "a.json"), (SQUAD, "a.json"), (PROFILE, "a.md"), (KANBAN, "a.json")]
        )
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = data.draw(st.sampled_from([found.span(1) for found in VALUE.finditer(text)]))
        text = text[:start] + data.draw(st.sampled_from(ODD)) + text[end:]
    try:
        found = merged(text, data.draw(st.sampled_from(["", OWN, "project: {name: x}\n"])), name)
    except AoError as error:
        assert "Traceback" not in str(error)
    else:
        load_text(found.text, TARGET, {"SLACK_WEBHOOK_URL": "x"})


OWN = "# mine\ndefaults: {agent: demo}   # the demo\nprojects:\n  app:\n    path: .   # here\n"


def test_the_files_own_words_win_and_its_comments_stay() -> None:
    found = merged(SQUAD, OWN, "config.json")
    config = load_text(found.text, TARGET, {}).config
    assert config.defaults.agent == "demo"
    assert config.projects["app"].branch_pattern == "me/{{name}}"
    assert all(word in found.text for word in ("# mine", "# the demo", "# here"))
    (kept,) = [entry for entry in found.entries if entry.outcome == "kept"]
    assert (kept.to, kept.note) == ("defaults.agent", 'the file says "demo"')


def test_asked_to_it_replaces_them() -> None:
    found = merged(SQUAD, OWN, "config.json", overwrite=True)
    assert load_text(found.text, TARGET, {}).config.defaults.agent == "aider"
    assert "kept" not in {entry.outcome for entry in found.entries}


def test_a_project_is_known_by_its_folder() -> None:
    text = f"projects: {{other: {{path: {FOLDER}, sessionPrefix: o}}}}\n"
    found = merged(text, OWN)
    projects = load_text(found.text, TARGET, {}).config.projects
    assert list(projects) == ["app"]
    assert projects["app"].session_prefix == "o"
    assert outcomes(found)["projects.other.sessionPrefix"] == ("changed", "projects.app.sessionPrefix")


@pytest.mark.parametrize("text", ["", "hello: world\n", '{"a": 1}', "[1, 2]", "---\n---\n"])
def test_what_nobody_knows_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        brought(text)


def test_what_is_no_yaml_is_told_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"agent-orchestrator\.yaml:3: not valid YAML"):
        brought("defaults: {agent: x}\nprojects: [\n")


@pytest.mark.anyio
async def test_what_concerns_the_daemon_says_where_it_counts(tmp_path: Path) -> None:
    own = Home(tmp_path / "ao")
    config = SimpleNamespace(places=(own.config, None), workspaces=tuple, around=lambda _: TrustContext(tmp_path))
    projects: Any = SimpleNamespace(config=config)
    text = "port: 4000\nprojects: {app: {path: /r, defaultBranch: main}}\n"

    async def notes(output: Path) -> dict[str, str]:
        found = await Configuration(own, projects).bring(
            "other.yaml", text, Context(tmp_path), output=str(output), replace=False, dry_run=True
        )
        return {each["to"]: each["note"] for each in found["entries"]}

    assert (await notes(tmp_path / "agent-orchestrator.yaml"))["port"] == f"counts only in {own.config}"
    assert (await notes(own.config))["port"] == ""


# -- what is not the user's own ----------------------------------------------------------------------------------------

THEIRS = "readyThresholdMs: 5\nprojects: {app: {path: ., postCreate: ['touch X']}}\n"


class Here:
    """A repository, and whoever imports into it."""

    def __init__(self, folder: Path) -> None:
        self.repo, self.home = folder / "repo", Home(folder / "ao")
        self.repo.mkdir()
        self.git("init", "-q")

        async def resolve(_context: Context) -> None: ...

        config = SimpleNamespace(
            places=(self.home.config, None),
            workspaces=lambda: (self.repo / "trees",),
            around=lambda loaded: TrustContext(loaded.path.parent),
        )
        projects: Any = SimpleNamespace(config=config, host=LocalHost(), resolve=resolve)
        self.configuration = Configuration(self.home, projects)

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

    async def bring(self, source: Path, text: str = THEIRS, shown: str = "", dry_run: bool = False) -> dict[str, Any]:
        context = Context(self.repo)
        return await self.configuration.bring(
            str(source), text, context, output=None, replace=False, dry_run=dry_run, shown=shown
        )


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.mark.anyio
async def test_what_came_with_a_repository_is_written_only_when_it_was_seen(here: Here) -> None:
    source = here.write("old.yaml", THEIRS, tracked=True)
    with pytest.raises(Denied, match=r"old\.yaml is not your own, .* read them by ao import --dry-run, then say --yes"):
        await here.bring(source)
    found = await here.bring(source, dry_run=True)
    assert found["commands"] == ["projects.app.postCreate: touch X"] and not here.written
    with pytest.raises(Conflict, match="changed since it was shown"):
        await here.bring(source, THEIRS.replace("touch", "rm"), found["digest"])
    assert not here.written
    assert (await here.bring(source, shown=found["digest"]))["written"] and "touch X" in here.written
    assert (await here.bring(source))["digest"] == ""  # which adds nothing to what was seen


@pytest.mark.anyio
async def test_so_is_what_an_agent_wrote_or_a_pipe_brought_and_code_that_is_named(here: Here) -> None:
    with pytest.raises(Denied):
        await here.bring(here.write("trees/old.yaml", THEIRS))
    with pytest.raises(Denied):
        await here.bring(here.repo / "import.json")
    (here.repo / "link.yaml").symlink_to(here.write("old.yaml", THEIRS, tracked=True))
    with pytest.raises(Denied):
        await here.bring(here.repo / "link.yaml")
    named = "plugins: [./evil.py]\n" + THEIRS
    here.write("evil.py", "1\n")
    found = await here.bring(here.repo / "old.yaml", named, dry_run=True)
    assert [line for line in found["commands"] if line.endswith("evil.py: code")]
    here.write("evil.py", "2\n")
    with pytest.raises(Conflict, match="code that it would name, changed"):
        await here.bring(here.repo / "old.yaml", named, found["digest"])
    assert not here.written


@pytest.mark.anyio
async def test_what_decides_for_the_daemon_is_shown_too(here: Here) -> None:
    source = here.write("old.yaml", "", tracked=True)
    text = "database: postgresql://evil.example/all\ndefaults: {agent: codex}\n"
    found = await here.bring(source, text, dry_run=True)
    assert found["commands"] == ["database: postgresql://evil.example/all"] and found["digest"]


@pytest.mark.anyio
async def test_the_users_own_and_what_runs_nothing_are_not_asked_about(here: Here) -> None:
    assert (await here.bring(here.write("old.yaml", "", tracked=True), "defaults: {agent: codex}\n"))["written"]
    found = await here.bring(here.write("own.yaml", THEIRS))
    assert found["written"] and found["digest"] == "" and found["commands"] == ["projects.app.postCreate: touch X"]
