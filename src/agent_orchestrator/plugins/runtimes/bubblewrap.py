"""`sandbox: bwrap`: runs a launch's command in bubblewrap, for every runtime that starts processes on this machine.

The agent sees the whole file system, read-only except for its writable folders; hidden folders look empty. It has its own processes,
shared memory, `/tmp` and minimal `/dev`; the network is the machine's.

    runtime ─► sh (ignores the signals of a terminal or a stop) ─► bwrap, whose pid is the handle's ─► its init ─► the agent

- *A stop reaches the agent first.* Ctrl-C and a stop are sent to all of these: bwrap has to outlive them, or the agent could not obey.
  Ignored signals are inherited, so the agent's side begins with a few lines of Python that restore the defaults.
- *Ended as a whole.* The end of bwrap, of its agent or of the holder ends everything inside. Exit codes pass through; an agent killed
  by signal n ends with 128 + n.
- *Its own terminal.* It stays in the session of its terminal, so that job control works. Characters that it puts into that terminal's
  input (`TIOCSTI`) are read only by the agent itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols import LaunchSpec, Mount
from agent_orchestrator.protocols.host import Host

SANDBOXED_RUNTIMES = frozenset({"tmux", "process"})
"""The runtimes whose launches can be put into the sandbox."""

_NAMESPACE_OPTIONS = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_SYSTEM_MOUNTS = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
_BASE_OPTIONS = (*_NAMESPACE_OPTIONS, "--die-with-parent", "--cap-drop", "ALL", *_SYSTEM_MOUNTS)
_SCRATCH_FOLDERS = (Path("/tmp"), Path("/var/tmp"))
_RUN = Path("/run")
_VISIBLE_RUN_PATHS = ("systemd/resolve", "resolvconf", "NetworkManager", "nscd", "current-system", "booted-system")
"""Parts of `/run` that stay visible: for name resolution, and NixOS's programs; the rest of `/run` gives access to services."""
_OUTER_COMMAND = ("/bin/sh", "-c", 'trap "" INT QUIT TERM TSTP; exec "$0" "$@"')
_INNER_SCRIPT = """\
import os, signal, sys
for name in ("INT", "QUIT", "TERM", "TSTP", "PIPE", "XFSZ"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
program, *rest = sys.argv[2:]
if sys.argv[1]:
    os.environ.pop(sys.argv[1], None)
try:
    os.execvp(program, [program, *rest])
except OSError as error:
    sys.stderr.write(f"{program}: {error.strerror}\\n")
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""

_SERVICE_VARIABLES = (
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "XAUTHORITY",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DOCKER_HOST",
)
_REMOVED_VARIABLES = (*_SERVICE_VARIABLES, "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "TMP", "TEMP")


@dataclass(frozen=True, slots=True)
class SandboxMounts:
    """What an agent sees and may change.

    If two entries cover a path, the more specific one applies; for the same path, the later of these fields.
    """

    hidden: tuple[Path, ...] = ()
    """Paths that look empty; missing ones are skipped."""
    visible: tuple[Path, ...] = ()
    """Paths that are read-only, also within hidden folders."""
    writable: tuple[Path, ...] = ()
    own: tuple[Mount, ...] = ()
    """The session's own folders, mounted writable over others."""
    fixed: tuple[Path, ...] = ()
    """Read-only paths within writable folders: they can be neither changed nor replaced."""


async def find_bwrap(host: Host) -> str:
    """Return the path of bwrap. Raises `Missing`, with the remedy, if this machine cannot run it."""
    if sys.platform != "linux":
        raise Missing("sandbox: bwrap needs Linux", "use runtime: docker, or write sandbox: none")
    program = host.which("bwrap")
    if program is None:
        raise Missing(
            "sandbox: bwrap needs bubblewrap, which is not installed",
            "install it (apt install bubblewrap, dnf install bubblewrap), or write sandbox: none",
        )
    result = await host.run([program, *_BASE_OPTIONS, "--", "/bin/sh", "-c", "exit 0"], timeout=20)
    if result.code:
        reason = result.error.removeprefix("bwrap: ") or f"it ended with {result.code}"
        raise Missing(
            f"bubblewrap cannot make a sandbox here: {reason}",
            "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, on Ubuntu "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container its own settings), or write sandbox: none",
        )
    return program


def sandbox_command(argv: Sequence[str], walls: SandboxMounts, program: str) -> list[str]:
    """Return the command line that runs a command without a terminal in the sandbox.

    The command is its own init: bwrap's init would be left for the machine's to reap.
    """
    return [program, *_BASE_OPTIONS, "--as-pid-1", *_mount_options(walls), "--chdir", "/", "--", *argv]


def sandbox_launch(spec: LaunchSpec, walls: SandboxMounts, program: str) -> LaunchSpec:
    """Return the launch changed to run in the sandbox; `program` is the path of bwrap."""
    env = {name: value for name, value in spec.env.items() if name not in _REMOVED_VARIABLES} | {"TMPDIR": "/tmp"}
    # Python puts LC_CTYPE into an environment that names no language.
    removed_variable = "" if "LC_CTYPE" in env else "LC_CTYPE"
    inner = (sys.executable, "-I", "-S", "-c", _INNER_SCRIPT, removed_variable)
    argv = (
        *_OUTER_COMMAND,
        program,
        *_BASE_OPTIONS,
        *_mount_options(walls),
        "--chdir",
        str(spec.cwd),
        "--",
        *inner,
        *spec.argv,
    )
    return replace(spec, argv=argv, env=env)


def _mount_options(walls: SandboxMounts) -> Iterator[str]:
    """Yield bwrap's mount options, from the outermost path to the innermost.

    Hidden folders are made read-only at the end, when everything in them is mounted.
    """
    program_folders = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]]
    run = [] if _RUN.is_symlink() else [_RUN]
    entries = [
        *(("scratch", path) for path in _SCRATCH_FOLDERS),
        *(("hidden", path) for path in (*run, *walls.hidden)),
        *(
            ("shown", path)
            for path in (*(_RUN / name for name in _VISIBLE_RUN_PATHS), *program_folders, *walls.visible)
        ),
        *(("writable", path) for path in walls.writable),
        *(("writable", mount.target) for mount in walls.own),
        *(("fixed", path) for path in walls.fixed),
    ]
    roots = [Path(os.path.realpath(path)) for path in walls.writable]
    sources = {Path(os.path.realpath(mount.target)): mount.source for mount in walls.own}
    kinds = {Path(os.path.realpath(path)): kind for kind, path in entries if os.path.exists(path)}  # noqa: PTH110 - no error where it may not be looked
    hidden_folders: list[str] = []
    for path, kind in sorted(kinds.items(), key=lambda entry: len(entry[0].parts)):
        if kind == "scratch":
            yield from ("--perms", "1777", "--tmpfs", str(path))
        elif kind == "hidden" and path.is_dir():
            yield from ("--tmpfs", str(path))
            hidden_folders.append(str(path))
        elif kind == "hidden":
            yield from ("--dev-bind", os.devnull, str(path))
        elif kind == "writable":
            yield from ("--bind", str(sources.get(path, path)), str(path))
        elif _is_within(path, roots) if kind == "fixed" else _is_under_empty(path, kinds):
            yield from ("--ro-bind", str(path), str(path))
    for folder in hidden_folders:
        yield from ("--remount-ro", folder)


def _is_within(path: Path, roots: list[Path]) -> bool:
    """Return whether the path is in a writable folder; otherwise an agent put a symlink there, which would show a hidden path."""
    return any(path.is_relative_to(root) for root in roots)


def _is_under_empty(path: Path, kinds: dict[Path, str]) -> bool:
    """Return whether the path is within a folder that would otherwise be empty."""
    return any(kinds.get(parent) in ("hidden", "scratch") for parent in path.parents)
