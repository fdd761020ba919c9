"""What a session's agent can read and write if its project sets `sandbox: bwrap`. `plugins/runtimes/bubblewrap.py` builds the command.

Writable: the workspace, what Git writes for its branch, its launch's spool, what its CLI stores (`Agent.keeps`), and caches of the
session's own. Hidden: the rest of `$AO_HOME`, and where people keep keys (`secret_files.py`). The private folder is only readable: the
daemon and the runtime write there by name, and would follow a symlink that an agent left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.base.files.safe import touch
from agent_orchestrator.base.git.refs import escape_for_ref, find_layout
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core.facts import Facts, SessionFacts
from agent_orchestrator.errors import Conflict, Missing, UsageError
from agent_orchestrator.plugins.runtimes import bubblewrap
from agent_orchestrator.protocols import Agent, Handle, LaunchSpec
from agent_orchestrator.protocols.host import Host, ProgramResult
from agent_orchestrator.sessions.isolation.secret_files import SECRET_PATHS

CACHE_VARIABLES = {
    "XDG_CACHE_HOME": "",
    "npm_config_cache": "npm",
    "npm_config_store_dir": "pnpm",
    "BUN_INSTALL_CACHE_DIR": "bun",
    "GOMODCACHE": "go",
    "CARGO_HOME": "cargo",
    "GRADLE_USER_HOME": "gradle",
}
"""Variables that make package managers store downloads below the session's own cache folder."""

_GIT_PATH_VARIABLES = ("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_WORK_TREE")
"""Variables of Git that hold paths."""
_BRANCH_COMMANDS = ("update-ref", "worktree")
"""Commands by which our own Git changes branches in the repository itself; a worktree's path comes after `--`."""
_GIT_SETTINGS = {"rerere.enabled": "false"}
"""Settings that keep Git from writing to files that all worktrees share."""


def is_sandboxed(project: ProjectConfig, runtime: str) -> bool:
    """Return whether this project's launches by this runtime run in bubblewrap."""
    return project.sandbox == "bwrap" and runtime in bubblewrap.SANDBOXED_RUNTIMES


async def require_sandbox(host: Host, project: ProjectConfig, runtime: str) -> None:
    """Raise an error if the project's sandbox is not available for this runtime. A container counts as a sandbox."""
    if project.sandbox == "none" or runtime == "docker":
        return
    if runtime not in bubblewrap.SANDBOXED_RUNTIMES:
        names = " and ".join(sorted(bubblewrap.SANDBOXED_RUNTIMES))
        raise UsageError(
            f"sandbox: {project.sandbox} is for the runtimes {names}, not for {runtime}",
            "use one of these with --runtime, or write sandbox: none",
        )
    await bubblewrap.find_bwrap(host)


async def sandboxed_launch(
    host: Host, home: Home, facts: SessionFacts, agent: Agent, own: Mapping[str, str], spec: LaunchSpec
) -> LaunchSpec:
    """Return this launch in its sandbox; `own` are the variables that the project itself sets."""
    program = await bubblewrap.find_bwrap(host)
    cache = spec.private / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    caches = {name: str(cache / folder) for name, folder in CACHE_VARIABLES.items() if name not in own}
    env = {**spec.env, **caches, **_git_setting_variables(spec.env)}
    spool = Path(spec.env["AO_SPOOL"])
    agent_state = await run_in_own_thread(agent.keeps, env, spec.private)
    env |= agent_state.env
    for path in agent_state.writable:
        if not os.path.lexists(path):
            path.mkdir(mode=0o700, parents=True)
    for path in agent_state.fixed:
        _create_empty(path)
    for mount in agent_state.own:
        for folder in (mount.source, mount.target):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    assert facts.workspace is not None
    git_writable, git_fixed = _git_paths(facts, Path(facts.workspace.git_dir))
    user_home = Path(spec.env.get("HOME") or Path.home())
    walls = bubblewrap.SandboxMounts(
        hidden=(home.path, home.socket("x").parent, *(user_home / name for name in SECRET_PATHS)),
        visible=(user_home, home.programs, Path(facts.spec.repo), spec.private),
        writable=(spec.cwd, cache, turns_folder(spec.private), spool, *agent_state.writable, *git_writable),
        own=agent_state.own,
        fixed=(*git_fixed, *(path for path in agent_state.fixed if not path.is_symlink())),
    )
    return bubblewrap.sandbox_launch(replace(spec, env=env), walls, program)


def _create_empty(path: Path) -> None:
    """Create an empty file or folder at a path that must stay unchanged: only what exists can be mounted read-only.

    A CLI may take commands from such a path, so the agent must not create it.
    """
    if os.path.lexists(path) or not path.parent.is_dir():
        return
    if not path.suffix:
        path.mkdir(mode=0o700)
        return
    content = "{}\n" if path.suffix in (".json", ".jsonc") else ""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:  # noqa: PTH123
        file.write(content)


def with_inner_pid(handle: Handle) -> Handle:
    """Return the handle with the pid that the agent sees inside: bwrap's init is 1, the program it starts is 2."""
    return replace(handle, address={**handle.address, "inside": "2"})


def turns_folder(private: Path) -> Path:
    """Return the folder for the files of a headless agent's turns, which is writable in the sandbox."""
    return private / "turns"


def remove_sandbox_files(facts: SessionFacts, private: Path) -> None:
    """Remove what a sandbox needed: its caches, and the file that keeps the branch's folder."""
    shutil.rmtree(private / "cache", ignore_errors=True)
    if (layout := find_layout(Path(facts.spec.repo))) is not None:
        _holder_file(layout.common, facts).unlink(missing_ok=True)


# -- Git ---------------------------------------------------------------------------------------------------------------


class SandboxedGitHost(LocalHost):
    """This machine, where our own Git in a sandboxed agent's workspace has no more rights than the agent.

    The configuration of a submodule that the agent made there names commands (`filter.*.clean`) that Git runs to find what has changed.
    """

    def __init__(self, config: ConfigSet, facts: Facts, hidden: Sequence[Path]) -> None:
        """`hidden` are our own folders, hidden in addition to where people keep keys."""
        super().__init__()
        self._config = config
        self._facts = facts
        self._hidden = hidden

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        """Run a program until it ends."""
        # The program that starts Git, such as a shell that limits its output, runs nothing of the agent's.
        git_at = argv.index("git") if "git" in argv else 0
        prefix, command = argv[:git_at], argv[git_at:]
        folder_at = command.index("-C") + 1 if command[0] == "git" and "-C" in command else 0
        if folder_at and (facts := self._owner(Path(command[folder_at]))):
            command = self._sandbox_command(command, facts, env or {})
            env = {name: value for name, value in (env or {}).items() if _is_harmless(name)}
        elif folder_at and command[folder_at + 1] in _BRANCH_COMMANDS and self._is_shared(Path(command[folder_at])):
            command = self._limit_to_repository(command, Path(command[folder_at]))
        return await super().run([*prefix, *command], cwd=cwd, env=env, input=input, timeout=timeout)

    def _owner(self, path: Path) -> SessionFacts | None:
        """Return the session that a folder belongs to, if it was launched and runs in a sandbox or container, or None."""
        folder_prefix = f"{path}/"
        for facts in self._facts.sessions.values():
            if facts.launch is None or not folder_prefix.startswith(f"{facts.spec.path}/"):
                continue
            project = self._config.project(facts.project)
            if project is not None and (is_sandboxed(project, facts.spec.runtime) or facts.spec.runtime == "docker"):
                return facts
        return None

    def _is_shared(self, repo: Path) -> bool:
        """Return whether an agent in a sandbox has worked in this repository."""
        sessions = self._facts.sessions.values()
        projects = {facts.project for facts in sessions if facts.launch is not None and facts.spec.repo == str(repo)}
        configs = (self._config.project(name) for name in projects)
        return any(project is not None and project.sandbox == "bwrap" for project in configs)

    def _sandbox_command(self, argv: Sequence[str], facts: SessionFacts, env: Mapping[str, str]) -> Sequence[str]:
        """Return a Git command that runs in the same sandbox as the session's agent."""
        workspace, program = Path(facts.spec.path), self.which("bwrap")
        argv = [argv[0], "-c", "safe.bareRepository=explicit", *argv[1:]]
        if program is None and facts.spec.runtime == "docker":
            return self._without_submodules(argv, workspace)
        layout = find_layout(workspace)
        if layout is None:
            raise Conflict(
                f"{workspace} is not the workspace that was made for {facts.id}", "see what became of its .git"
            )
        if program is None:
            raise Missing("bubblewrap is not installed any more", "install it again: apt install bubblewrap")
        writable, fixed = _git_paths(facts, layout.git_dir)
        git_paths = [
            Path(value) for name, value in env.items() if name in _GIT_PATH_VARIABLES and value.startswith("/")
        ]
        user_home = Path.home()
        walls = bubblewrap.SandboxMounts(
            hidden=(*self._hidden, *(user_home / name for name in SECRET_PATHS)),
            visible=(user_home, Path(facts.spec.repo)),
            writable=(workspace, *writable, *(path if path.is_dir() else path.parent for path in git_paths)),
            fixed=fixed,
        )
        return bubblewrap.sandbox_command(argv, walls, program)

    def _limit_to_repository(self, argv: Sequence[str], repo: Path) -> Sequence[str]:
        """Return a Git command that can write only to the repository: an agent may have replaced a branch's log with a symlink."""
        program, layout = self.which("bwrap"), find_layout(repo)
        if program is None or layout is None:
            return argv
        paths = argv[argv.index("--") + 1 :] if "--" in argv else ()
        existing_parents = (
            next(parent for parent in Path(path_text).parents if parent.is_dir())
            for path_text in paths
            if path_text.startswith("/")
        )
        walls = bubblewrap.SandboxMounts(visible=(repo,), writable=(layout.common, *existing_parents))
        return bubblewrap.sandbox_command(argv, walls, program)

    def _without_submodules(self, argv: Sequence[str], workspace: Path) -> Sequence[str]:
        """Return a Git command that reads no nested repositories, for machines without bubblewrap."""
        folder_at = argv.index("-C") + 1
        if Path(argv[folder_at]) != workspace:
            raise Missing(
                f"{argv[folder_at]} was made in a container, and cannot be looked at safely without bubblewrap",
                "install it: apt install bubblewrap",
            )
        words = ["--ignore-submodules=all" if word == "--ignore-submodules=none" else word for word in argv]
        return [words[0], "-c", "diff.ignoreSubmodules=all", *words[1:]]


_KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "GCM_INTERACTIVE",
    "SSL_CERT_FILE",
)
"""Variables, besides Git's own, that our Git gets in an agent's workspace."""


def _is_harmless(variable: str) -> bool:
    """Return whether programs named by an agent may see this variable: Git's own are set by us, except those with a token."""
    return (
        variable in _KEPT_VARIABLES
        or variable.startswith("LC_")
        or (variable.startswith("GIT_") and not variable.startswith(("GIT_ASKPASS_", "GIT_HTTP")))
    )


def _git_paths(facts: SessionFacts, git_dir: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return what Git must be able to write for this session, and what of that must stay read-only."""
    workspace = Path(facts.spec.path)
    if git_dir == workspace / ".git":
        return _clone_paths(git_dir)
    layout = find_layout(Path(facts.spec.repo))
    if layout is None or not git_dir.is_dir():
        raise Conflict(f"the repository of {facts.id} is not at {facts.spec.repo}", "correct the project's path")
    common = layout.common
    folders = [_branch_folder(common, facts)]
    if (common / "logs").is_dir():
        folders.append(_real_folder(common, Path("logs", "refs", "heads", *_branch_parents(facts))))
    touch(_holder_file(common, facts))
    config = git_dir / "config.worktree"  # read by Git if the repository has extensions.worktreeConfig
    touch(config)
    shared_folders = [path for name in ("objects", "lfs", "reftable") if (path := common / name).is_dir()]
    pointers = (workspace / ".git", git_dir / "commondir", git_dir / "gitdir", config)
    return (git_dir, *shared_folders, *folders), (*pointers, common / "objects" / "info")


def _clone_paths(git_dir: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the same for a clone: all of it is writable, except what would make the daemon's Git run commands."""
    if git_dir.is_symlink():
        raise Conflict(f"{git_dir} is a symlink, not the clone that was made", "find out what it is, and remove it")
    (git_dir / "hooks").mkdir(exist_ok=True)
    # Git reads its configuration from the folder that this file names: this one.
    pointer = git_dir / "commondir"
    if pointer.is_symlink() or not pointer.exists() or pointer.read_text() != ".\n":
        new_pointer = git_dir / "commondir.new"
        new_pointer.unlink(missing_ok=True)
        new_pointer.write_text(".\n")
        new_pointer.replace(pointer)
    fixed = (git_dir / "config", pointer, git_dir / "hooks", git_dir / "objects" / "info")
    return (git_dir,), fixed


def _branch_parents(facts: SessionFacts) -> tuple[str, ...]:
    """Return the folders of the session's branch."""
    return tuple(facts.spec.branch.split("/")[:-1])


def _branch_folder(common: Path, facts: SessionFacts) -> Path:
    """Return the folder of the branch's file, which Git replaces; other branches in the same folder are writable too."""
    return _real_folder(common, Path("refs", "heads", *_branch_parents(facts)))


def _holder_file(common: Path, facts: SessionFacts) -> Path:
    """Return a file that Git ignores and that keeps the branch's folder when Git packs all branches: a new folder would not be writable."""
    return (
        Path(common, "refs", "heads", *_branch_parents(facts)) / f"ao-{escape_for_ref(facts.id).replace('/', '-')}.lock"
    )


def _real_folder(common: Path, name: Path) -> Path:
    """Return a folder of the repository, created if missing; raise `Conflict` if a symlink leads out of it."""
    path = common / name
    path.mkdir(parents=True, exist_ok=True)
    if os.path.realpath(path) != str(Path(os.path.realpath(common), name)):
        raise Conflict(f"{path} is a symlink that leads out of the repository", "find out what it is, and remove it")
    return path


def _git_setting_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that add our Git settings to those in the environment."""
    count = int(env.get("GIT_CONFIG_COUNT") or 0)
    variables = {"GIT_CONFIG_COUNT": str(count + len(_GIT_SETTINGS))}
    for number, (key, value) in enumerate(_GIT_SETTINGS.items(), count):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
