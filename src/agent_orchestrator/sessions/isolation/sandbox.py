"""What a session's agent sees and may change where its project says `sandbox: bwrap`. `plugins/runtimes/sandbox.py` builds it.

Writable: the workspace, what Git writes for its branch, its launch's spool, what its CLI keeps (`protocols.Keeps`), and caches of the
session's own. Hidden: `$AO_HOME` but for that, and where people keep keys. The private folder is readable only: the daemon and the
runtime write there by name, and would follow a symlink that an agent left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.base.files.safe import touch
from agent_orchestrator.base.git.refs import find_layout, ref_safe
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.threads import aside
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Conflict, Missing, UsageError
from agent_orchestrator.plugins.runtimes import sandbox
from agent_orchestrator.protocols import Agent, Handle, Keeps, Kept, LaunchSpec
from agent_orchestrator.protocols.host import Completed, Host

SECRETS = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".oci",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".docker",
    ".kube",
    ".fly",
    ".age",
    ".password-store",
    ".terraform.d",
    ".vault-token",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".gem/credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/git/credentials",
    ".config/gcloud",
    ".config/doctl",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/containers",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/containers",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".var/app",
    "snap/firefox",
    "snap/chromium",
    ".config/Signal",
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".local/share/fish/fish_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".Xauthority",
)
"""Below the user's home: keys, logins, mail, browsers, what was typed."""

CACHES = {
    "XDG_CACHE_HOME": "",
    "npm_config_cache": "npm",
    "npm_config_store_dir": "pnpm",
    "BUN_INSTALL_CACHE_DIR": "bun",
    "GOMODCACHE": "go",
    "CARGO_HOME": "cargo",
    "GRADLE_USER_HOME": "gradle",
}
"""Where package managers are to keep what they fetch, below the session's own cache folder."""

_GIT_PLACES = ("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_WORK_TREE")
_MOVES_BRANCHES = ("update-ref", "worktree")
"""What our own Git does to branches in the repository itself; a worktree is named behind `--`."""
_GIT_SETTINGS = {"rerere.enabled": "false"}
"""What would write to files that all worktrees share, beside what no workspace's Git does."""


def applies(project: ProjectConfig, runtime: str) -> bool:
    """Do this project's launches by this runtime run in bubblewrap?"""
    return project.sandbox == "bwrap" and runtime in sandbox.WRAPPED


async def check(host: Host, project: ProjectConfig, runtime: str) -> None:
    """Refuse what would have to run without the sandbox that the project wants. A container is one of its own."""
    if project.sandbox == "none" or runtime == "docker":
        return
    if runtime not in sandbox.WRAPPED:
        names = " and ".join(sorted(sandbox.WRAPPED))
        raise UsageError(
            f"sandbox: {project.sandbox} is for the runtimes {names}, not for {runtime}",
            "use one of these with --runtime, or write sandbox: none",
        )
    await sandbox.check(host)


async def confined(
    host: Host, home: Home, facts: SessionFacts, agent: Agent, own: Mapping[str, str], spec: LaunchSpec
) -> LaunchSpec:
    """This launch in its sandbox; `own` are the variables that the project itself sets."""
    program = await sandbox.check(host)
    cache = spec.private / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    caches = {name: str(cache / folder) for name, folder in CACHES.items() if name not in own}
    env = {**spec.env, **caches, **_with_settings(spec.env)}
    spool = Path(spec.env["AO_SPOOL"])
    kept = await aside(agent.keeps, env, spec.private) if isinstance(agent, Keeps) else Kept()
    env |= kept.env
    for path in kept.writable:
        if not os.path.lexists(path):
            path.mkdir(mode=0o700, parents=True)
    for path in kept.fixed:
        _put_there(path)
    for mount in kept.own:
        for folder in (mount.source, mount.target):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    assert facts.place is not None
    git_writable, git_fixed = _git(facts, Path(facts.place.git_dir))
    person = Path(spec.env.get("HOME") or Path.home())
    walls = sandbox.Walls(
        hidden=(home.path, home.socket("x").parent, *(person / name for name in SECRETS)),
        shown=(person, home.programs, Path(facts.spec.repo), spec.private),
        writable=(spec.cwd, cache, turns(spec.private), spool, *kept.writable, *git_writable),
        own=kept.own,
        fixed=(*git_fixed, *(path for path in kept.fixed if not path.is_symlink())),
    )
    return sandbox.wrapped(replace(spec, env=env), walls, program)


def _put_there(path: Path) -> None:
    """Only what is there can be kept as it is: what a CLI takes commands from, where the user has none, is made with nothing in it."""
    if os.path.lexists(path) or not path.parent.is_dir():
        return
    if not path.suffix:
        path.mkdir(mode=0o700)
        return
    content = "{}\n" if path.suffix in (".json", ".jsonc") else ""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:  # noqa: PTH123
        file.write(content)


def seen(handle: Handle) -> Handle:
    """With the pid that the agent itself sees: bwrap's init is the first, what it starts the second."""
    return replace(handle, address={**handle.address, "inside": "2"})


def turns(private: Path) -> Path:
    """Where a headless agent's turns keep their files: what runs in the sandbox writes them."""
    return private / "turns"


def forget(facts: SessionFacts, private: Path) -> None:
    """Remove what a sandbox needed: its caches, and what holds on to the branch's folder."""
    shutil.rmtree(private / "cache", ignore_errors=True)
    if (layout := find_layout(Path(facts.spec.repo))) is not None:
        _holding(layout.common, facts).unlink(missing_ok=True)


# -- Git ---------------------------------------------------------------------------------------------------------------


class Guarded(LocalHost):
    """This machine, where our own Git in a sandboxed agent's workspace has no more rights than the agent: the configuration of a
    submodule that it made there names commands (`filter.*.clean`) that Git runs to tell what has changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.owner: Callable[[Path], SessionFacts | None] = lambda _path: None
        """The sandboxed session whose workspace this is, or is in."""
        self.hidden: tuple[Path, ...] = ()
        """What no agent sees, beside where people keep keys: our own folders."""
        self.shared: Callable[[Path], bool] = lambda _path: False
        """Do agents in sandboxes write to this repository?"""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> Completed:
        """Run a program to its end."""
        # What it is started by, a shell that cuts off its output say, has nothing of the agent's to run.
        begin = argv.index("git") if "git" in argv else 0
        starter, command = argv[:begin], argv[begin:]
        where = command.index("-C") + 1 if command[0] == "git" and "-C" in command else 0
        if where and (facts := self.owner(Path(command[where]))):
            command = self._guarded(command, facts, env or {})
            env = {name: value for name, value in (env or {}).items() if _harmless(name)}
        elif where and command[where + 1] in _MOVES_BRANCHES and self.shared(Path(command[where])):
            command = self._in_repository(command, Path(command[where]))
        return await super().run([*starter, *command], cwd=cwd, env=env, input=input, timeout=timeout)

    def _guarded(self, argv: Sequence[str], facts: SessionFacts, env: Mapping[str, str]) -> Sequence[str]:
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
        writable, fixed = _git(facts, layout.git_dir)
        named = [Path(value) for name, value in env.items() if name in _GIT_PLACES and value.startswith("/")]
        person = Path.home()
        walls = sandbox.Walls(
            hidden=(*self.hidden, *(person / name for name in SECRETS)),
            shown=(person, Path(facts.spec.repo)),
            writable=(workspace, *writable, *(path if path.is_dir() else path.parent for path in named)),
            fixed=fixed,
        )
        return sandbox.within(argv, walls, program)

    def _in_repository(self, argv: Sequence[str], repo: Path) -> Sequence[str]:
        """Git appends to a branch's log. An agent may have put a symlink in its place: nothing but the repository can be written."""
        program, layout = self.which("bwrap"), find_layout(repo)
        if program is None or layout is None:
            return argv
        named = argv[argv.index("--") + 1 :] if "--" in argv else ()
        made = (next(above for above in Path(word).parents if above.is_dir()) for word in named if word.startswith("/"))
        walls = sandbox.Walls(shown=(repo,), writable=(layout.common, *made))
        return sandbox.within(argv, walls, program)

    def _without_submodules(self, argv: Sequence[str], workspace: Path) -> Sequence[str]:
        """Where there is no sandbox for it, Git looks into no repository that the agent may have made within its own."""
        where = argv.index("-C") + 1
        if Path(argv[where]) != workspace:
            raise Missing(
                f"{argv[where]} was made in a container, and cannot be looked at safely without bubblewrap",
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


def _harmless(variable: str) -> bool:
    """May what an agent has written see it? Git's own are ours, but for those that hold a token."""
    return (
        variable in _KEPT_VARIABLES
        or variable.startswith("LC_")
        or (variable.startswith("GIT_") and not variable.startswith(("GIT_ASKPASS_", "GIT_HTTP")))
    )


def owner(
    project_of: Callable[[str], ProjectConfig | None], sessions: Iterable[SessionFacts], path: Path
) -> SessionFacts | None:
    """The session in a sandbox or a container, launched before, that this folder belongs to."""
    inside = f"{path}/"
    for facts in sessions:
        if facts.launch is None or not inside.startswith(f"{facts.spec.path}/"):
            continue
        project = project_of(facts.project)
        if project is not None and (applies(project, facts.spec.runtime) or facts.spec.runtime == "docker"):
            return facts
    return None


def shared(project_of: Callable[[str], ProjectConfig | None], sessions: Iterable[SessionFacts], path: Path) -> bool:
    """Did an agent in a sandbox work in this repository?"""
    mine = {facts.project for facts in sessions if facts.launch is not None and facts.spec.repo == str(path)}
    return any((project := project_of(name)) is not None and project.sandbox == "bwrap" for name in mine)


def _git(facts: SessionFacts, git_dir: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """What Git must be able to write for this session, and what of that it must not."""
    workspace = Path(facts.spec.path)
    if git_dir == workspace / ".git":
        return _of_clone(git_dir)
    layout = find_layout(Path(facts.spec.repo))
    if layout is None or not git_dir.is_dir():
        raise Conflict(f"the repository of {facts.id} is not at {facts.spec.repo}", "correct the project's path")
    common = layout.common
    folders = [_branch_folder(common, facts)]
    if (common / "logs").is_dir():
        folders.append(_plain(common, Path("logs", "refs", "heads", *_above(facts))))
    touch(_holding(common, facts))
    config = git_dir / "config.worktree"  # counts where the repository has extensions.worktreeConfig
    touch(config)
    shared = [path for name in ("objects", "lfs", "reftable") if (path := common / name).is_dir()]
    pointers = (workspace / ".git", git_dir / "commondir", git_dir / "gitdir", config)
    return (git_dir, *shared, *folders), (*pointers, common / "objects" / "info")


def _of_clone(git_dir: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """All is its own, but the daemon runs Git there: what commands could be put into is fixed, and so that it is not replaced."""
    if git_dir.is_symlink():
        raise Conflict(f"{git_dir} is a symlink, not the clone that was made", "find out what it is, and remove it")
    (git_dir / "hooks").mkdir(exist_ok=True)
    # Git takes its configuration from where this file says: from here.
    pointer = git_dir / "commondir"
    if pointer.is_symlink() or not pointer.exists() or pointer.read_text() != ".\n":
        fresh = git_dir / "commondir.new"
        fresh.unlink(missing_ok=True)
        fresh.write_text(".\n")
        fresh.replace(pointer)
    fixed = (git_dir / "config", pointer, git_dir / "hooks", git_dir / "objects" / "info")
    return (git_dir,), fixed


def _above(facts: SessionFacts) -> tuple[str, ...]:
    return tuple(facts.spec.branch.split("/")[:-1])


def _branch_folder(common: Path, facts: SessionFacts) -> Path:
    """Git replaces a branch's file: it needs its folder. Other branches in the same folder cannot be told apart from it."""
    return _plain(common, Path("refs", "heads", *_above(facts)))


def _holding(common: Path, facts: SessionFacts) -> Path:
    """A file that Git takes for nothing. It keeps the folder there when Git packs all branches in it: a new one would not be writable."""
    return Path(common, "refs", "heads", *_above(facts)) / f"ao-{ref_safe(facts.id).replace('/', '-')}.lock"


def _plain(common: Path, name: Path) -> Path:
    """A folder of the repository, made if need be; one that leads elsewhere is an agent's doing."""
    path = common / name
    path.mkdir(parents=True, exist_ok=True)
    if os.path.realpath(path) != str(Path(os.path.realpath(common), name)):
        raise Conflict(f"{path} is a symlink that leads out of the repository", "find out what it is, and remove it")
    return path


def _with_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Git settings behind those that the environment has."""
    count = int(env.get("GIT_CONFIG_COUNT") or 0)
    found = {"GIT_CONFIG_COUNT": str(count + len(_GIT_SETTINGS))}
    for number, (key, value) in enumerate(_GIT_SETTINGS.items(), count):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found
