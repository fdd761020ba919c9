"""An agent's environment: the login shell's variables, without secrets and without those of the daemon's own environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.interpreter import make_launchers
from agent_orchestrator.config.learned_secrets import looks_secret
from agent_orchestrator.sessions.lifecycle import environment
from agent_orchestrator.sessions.lifecycle.environment import (
    AGENT_SECRETS,
    agent_environment,
    login_environment,
    session_variables,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def ours(own_world: Path) -> dict[str, str]:
    return {"HOME": str(own_world), "PATH": f"/only/ours:{os.environ['PATH']}", "SHELL": "/bin/bash", "LANG": "C.UTF-8"}


async def test_variables_are_parsed_whatever_the_login_shell_prints(ours: dict[str, str]) -> None:
    profile = 'echo "Welcome back!"\necho noise >&2\nexport PATH="$HOME/mine:$PATH"\nexport LINES_OF="a\nb=c"\nexport EMPTY=\n'
    Path(ours["HOME"], ".bash_profile").write_text(profile + "trap 'echo bye' EXIT\n")
    notes: list[str] = []
    variables = await login_environment(LocalHost(), None, ours, notes.append)
    assert notes == []
    assert variables["PATH"].split(":")[0] == f"{ours['HOME']}/mine"
    assert variables["PATH"].split(":").count("/only/ours") == 1
    assert variables["LINES_OF"] == "a\nb=c" and variables["EMPTY"] == ""
    assert not [name for name in variables if name.startswith("AO_")]


async def test_variables_of_an_interactive_shell_are_included(ours: dict[str, str]) -> None:
    Path(ours["HOME"], ".bash_profile").write_text("case $- in *i*) export INTERACTIVE=1;; esac\n")
    assert (await login_environment(LocalHost(), None, ours))["INTERACTIVE"] == "1"


async def test_a_shell_refusing_to_be_interactive_is_run_without_it(ours: dict[str, str]) -> None:
    Path(ours["HOME"], ".bash_profile").write_text("case $- in *i*) exit 3;; esac\nexport PLAIN=1\n")
    assert (await login_environment(LocalHost(), None, ours))["PLAIN"] == "1"


async def test_a_hanging_shell_falls_back_to_the_daemons_environment(
    ours: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "SHELL_TIMEOUT", 0.3)
    monkeypatch.setattr(environment, "INTERACTIVE_SHELL_TIMEOUT", 0.2)
    Path(ours["HOME"], ".bash_profile").write_text("sleep 60\n")
    notes: list[str] = []
    variables = await login_environment(LocalHost(), None, ours | {"AO_TOKEN": "x"}, notes.append)
    assert variables == ours
    assert "the login shell /bin/bash gave no environment" in notes[0] and "did not finish" in notes[0]


@pytest.mark.parametrize("shell", ["/no/such/shell", "/bin/false"])
async def test_an_invalid_shell_falls_back_to_the_daemons_environment(ours: dict[str, str], shell: str) -> None:
    notes: list[str] = []
    assert await login_environment(LocalHost(), None, ours | {"AO_SHELL": shell}, notes.append) == ours
    assert shell in notes[0]


async def test_the_configured_shell_has_precedence(ours: dict[str, str]) -> None:
    Path(ours["HOME"], ".profile").write_text("export FROM=sh\n")
    Path(ours["HOME"], ".bash_profile").write_text("export FROM=bash\n")
    assert (await login_environment(LocalHost(), "/bin/sh", ours))["FROM"] == "sh"


def activated_variables(prefix: Path | str, path: str) -> dict[str, str]:
    return {"VIRTUAL_ENV": str(prefix), "VIRTUAL_ENV_PROMPT": "it", "PATH": f"{prefix}/bin:{path}"}


def make_environment(folder: Path, marker: str = "pyvenv.cfg") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / marker).mkdir()
    return folder


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/false"])
async def test_an_environment_activated_for_the_daemon_is_not_passed_on(
    ours: dict[str, str], tmp_path: Path, shell: str
) -> None:
    theirs, conda = make_environment(tmp_path / "venv"), make_environment(tmp_path / "conda/envs/one", "conda-meta")
    for prefix in (sys.prefix, theirs, conda):
        started = (
            ours | activated_variables(prefix, ours["PATH"]) | {"CONDA_PREFIX": str(conda), "PYTHONHOME": str(prefix)}
        )
        variables = await login_environment(LocalHost(), shell, started)
        assert not {"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "CONDA_PREFIX", "PYTHONHOME"} & set(variables)
        assert f"{prefix}/bin" not in variables["PATH"].split(":") and "/only/ours" in variables["PATH"].split(":")


async def test_an_environment_activated_by_the_profile_is_passed_on(ours: dict[str, str], tmp_path: Path) -> None:
    theirs, profile = make_environment(tmp_path / "venv"), Path(ours["HOME"], ".bash_profile")
    lines = 'export VIRTUAL_ENV={0} PATH="{0}/bin:$PATH" PYTHONPATH="{0}/lib:/mine"\n'
    profile.write_text(lines.format(theirs))
    variables = await login_environment(LocalHost(), None, ours)
    assert variables["VIRTUAL_ENV"] == str(theirs) and variables["PATH"].split(":")[0] == f"{theirs}/bin"
    assert variables["PYTHONPATH"] == f"{theirs}/lib:/mine"
    linked = tmp_path / "linked"
    linked.symlink_to(sys.prefix)
    for prefix in (sys.prefix, linked):
        profile.write_text(lines.format(prefix))
        removed: list[str] = []
        variables = await login_environment(LocalHost(), None, ours, found_ours=removed.append)
        assert "VIRTUAL_ENV" not in variables and variables["PYTHONPATH"] == "/mine" and removed == [f"{prefix}/bin"]
        assert f"{prefix}/bin" not in variables["PATH"].split(":")


async def test_a_shared_python_installation_is_passed_on(ours: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's Python, or the conda base in which `ao` is installed."""
    base = Path(ours["HOME"], "conda")
    (base / "condabin").mkdir(parents=True)
    make_environment(base, "conda-meta")
    for prefix in ("/usr", str(base)):
        monkeypatch.setattr(sys, "prefix", prefix)
        removed: list[str] = []
        Path(ours["HOME"], ".bash_profile").write_text(f'export PATH="{prefix}/bin:$PATH"\n')
        variables = await login_environment(LocalHost(), None, ours, found_ours=removed.append)
        assert variables["PATH"].split(":")[0] == f"{prefix}/bin" and not removed


async def test_a_tool_installation_stays_on_the_path(
    ours: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pipx and uv put a link to `ao` among the user's programs; the environment behind it is on no PATH."""
    tool, local = make_environment(tmp_path / "tools/agent-orchestrator"), tmp_path / ".local/bin"
    (tool / "bin/ao").touch()
    local.mkdir(parents=True)
    (local / "ao").symlink_to(tool / "bin/ao")
    monkeypatch.setattr(sys, "prefix", str(tool))
    variables = await login_environment(LocalHost(), None, ours | {"PATH": f"{local}:{tool}/bin:{ours['PATH']}"})
    assert str(local) in variables["PATH"].split(":") and f"{tool}/bin" not in variables["PATH"].split(":")


async def test_the_folder_of_ao_is_first_on_the_path(ours: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    make_launchers(str(programs))
    assert sorted(program.name for program in programs.iterdir()) == ["agent-orchestrator", "ao"]
    for shell in ("/bin/bash", "/bin/false"):
        variables = await login_environment(LocalHost(), shell, ours, programs=programs)
        assert (
            variables["PATH"].split(":")[0] == str(programs) and variables["PATH"].split(":").count(str(programs)) == 1
        )


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "LINEAR_API_KEY",
        "SLACK_WEBHOOK_URL",
        "DISCORD_WEBHOOK_URL",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "PGPASSWORD",
        "DB_PASS",
        "MYSQL_PWD",
        "npm_token",
        "STRIPE_SECRET",
        "SENTRY_DSN",
        "GITHUB_PAT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "OPENAI_API_KEY",
    ],
)
def test_secrets_are_removed_unless_the_agent_needs_them(name: str) -> None:
    assert looks_secret(name)
    assert name not in agent_environment({name: "s3cret"}, {}, {})
    assert agent_environment({name: "s3cret"}, {}, {}, [name])[name] == "s3cret"
    assert agent_environment({name: "s3cret"}, {name: "given"}, {})[name] == "given"


@pytest.mark.parametrize(
    "name",
    "PATH HOME SSH_AUTH_SOCK TOKENIZERS_PARALLELISM XDG_RUNTIME_DIR LANG PASSENGER KEYBOARD http_proxy GIT_AUTHOR_NAME".split(),  # noqa: SIM905
)
def test_other_variables_are_passed_on(name: str) -> None:
    assert agent_environment({name: "value"}, {}, {})[name] == "value"


def test_an_agent_gets_only_its_own_api_keys() -> None:
    login = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    assert "OPENAI_API_KEY" not in agent_environment(login, {}, {}, AGENT_SECRETS["claude-code"])
    assert agent_environment(login, {}, {}, AGENT_SECRETS["claude-code"])["ANTHROPIC_API_KEY"] == "a"
    assert not {"demo", "command"} & set(AGENT_SECRETS)


def test_variables_of_the_terminal_and_the_daemon_are_removed() -> None:
    login = dict.fromkeys(
        ["AO_TOKEN", "AO_HOME", "TMUX", "TMUX_PANE", "TERM_PROGRAM", "GIT_DIR", "GIT_CONFIG_COUNT", "CLAUDECODE"], "x"
    )
    variables = agent_environment(login | {"TERM": "dumb"}, {}, {"AO_SESSION": "s"})
    assert variables == {"TERM": "xterm-256color", "COLORTERM": "truecolor", "AO_SESSION": "s"}


def test_later_sources_override_earlier_ones() -> None:
    variables = agent_environment({"A": "login", "C": "login"}, {"A": "project", "B": "project"}, {"B": "session"})
    assert (variables["A"], variables["B"], variables["C"]) == ("project", "session", "login")


def test_the_variables_of_a_session_are_complete() -> None:
    variables = session_variables(
        session="app-x",
        project="app",
        workspace=Path("/w"),
        branch="feature/x",
        base="main",
        task_file=Path("/s/task.md"),
        spool=Path("/s/spool.jsonl"),
        inbox=Path("/s/inbox.jsonl"),
        url="http://127.0.0.1:3000",
        token="t",
        ports=(4000, 4001),
    )
    assert variables == {
        "AO_SESSION": "app-x",
        "AO_PROJECT": "app",
        "AO_WORKSPACE": "/w",
        "AO_BRANCH": "feature/x",
        "AO_BASE": "main",
        "AO_TASK_FILE": "/s/task.md",
        "AO_SPOOL": "/s/spool.jsonl",
        "AO_INBOX": "/s/inbox.jsonl",
        "AO_URL": "http://127.0.0.1:3000",
        "AO_TOKEN": "t",
        "PORT": "4000",
        "AO_PORT_0": "4000",
        "AO_PORT_1": "4001",
    }
