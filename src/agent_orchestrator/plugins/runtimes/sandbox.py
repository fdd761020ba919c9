"""`sandbox: bwrap`: a launch whose command runs in bubblewrap. The same for every runtime that starts processes on this machine.

The agent sees the whole file system, read-only but for what it is given; what is hidden looks empty. It has processes, shared
memory, a `/tmp` and a minimal `/dev` of its own; the network is the machine's.

    runtime ─► sh (ignores what a terminal or a stop sends) ─► bwrap, whose pid is the handle's ─► its init ─► the agent

- *Asked first.* Ctrl-C and a stop are sent to all of these: bwrap has to outlive them, or the agent could not obey. What is ignored
  is inherited, so the agent's side begins with a line of Python that undoes it.
- *Ended whole.* The end of bwrap, of its agent or of the holder ends everything inside. Exit codes pass through; an agent killed by
  signal n ends with 128 + n.
- *Its own terminal.* It stays in the session of its terminal, so that job control works. Characters that it puts into that
  terminal's input (`TIOCSTI`) are read by nobody but itself.
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

WRAPPED = frozenset({"tmux", "process"})
"""The runtimes whose launches can be put into the sandbox."""

_APART = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
_BASE = (*_APART, "--die-with-parent", "--cap-drop", "ALL", *_SYSTEM)
_SCRATCH = (Path("/tmp"), Path("/var/tmp"))
_RUN = Path("/run")
_RUN_SHOWN = ("systemd/resolve", "resolvconf", "NetworkManager", "nscd", "current-system", "booted-system")
"""What names are looked up by, and where NixOS has its programs; everything else there is a door to some service."""
_OUTER = ("/bin/sh", "-c", 'trap "" INT QUIT TERM TSTP; exec "$0" "$@"')
_INNER = """\
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

_DOORS = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "XAUTHORITY", "DISPLAY", "WAYLAND_DISPLAY", "DOCKER_HOST")
_LEFT_OUT = (*_DOORS, "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "TMP", "TEMP")


@dataclass(frozen=True, slots=True)
class Walls:
    """What an agent sees and may change. Of two that concern a path the more specific one holds, else the later of these."""

    hidden: tuple[Path, ...] = ()
    """Looks empty; what is not there is left out."""
    shown: tuple[Path, ...] = ()
    """Read-only, also within what is hidden."""
    writable: tuple[Path, ...] = ()
    own: tuple[Mount, ...] = ()
    """Folders of the session's in the place of others; writable."""
    fixed: tuple[Path, ...] = ()
    """Read-only, within what is writable: it can be neither changed nor replaced."""


async def check(host: Host) -> str:
    """The bwrap to use. Raises `Missing`, with the remedy, where this machine cannot run it."""
    if sys.platform != "linux":
        raise Missing("sandbox: bwrap needs Linux", "use runtime: docker, or write sandbox: none")
    program = host.which("bwrap")
    if program is None:
        raise Missing(
            "sandbox: bwrap needs bubblewrap, which is not installed",
            "install it (apt install bubblewrap, dnf install bubblewrap), or write sandbox: none",
        )
    done = await host.run([program, *_BASE, "--", "/bin/sh", "-c", "exit 0"], timeout=20)
    if done.code:
        why = done.error.removeprefix("bwrap: ") or f"it ended with {done.code}"
        raise Missing(
            f"bubblewrap cannot make a sandbox here: {why}",
            "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, on Ubuntu "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container its own settings), or write sandbox: none",
        )
    return program


def within(argv: Sequence[str], walls: Walls, program: str) -> list[str]:
    """A command without a terminal within walls. It is its own init: one of bwrap's would be left for the machine's to bury."""
    return [program, *_BASE, "--as-pid-1", *_mounts(walls), "--chdir", "/", "--", *argv]


def wrapped(spec: LaunchSpec, walls: Walls, program: str) -> LaunchSpec:
    """The same launch within walls; `program` is where bwrap is."""
    env = {name: value for name, value in spec.env.items() if name not in _LEFT_OUT} | {"TMPDIR": "/tmp"}
    # Python puts LC_CTYPE into an environment that names no language.
    undone = "" if "LC_CTYPE" in env else "LC_CTYPE"
    inner = (sys.executable, "-I", "-S", "-c", _INNER, undone)
    argv = (*_OUTER, program, *_BASE, *_mounts(walls), "--chdir", str(spec.cwd), "--", *inner, *spec.argv)
    return replace(spec, argv=argv, env=env)


def _mounts(walls: Walls) -> Iterator[str]:
    """From the outermost to the innermost; folders that look empty are closed at the end, when all that is in them is there."""
    own = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]]
    run = [] if _RUN.is_symlink() else [_RUN]
    places = [
        *(("scratch", path) for path in _SCRATCH),
        *(("hidden", path) for path in (*run, *walls.hidden)),
        *(("shown", path) for path in (*(_RUN / name for name in _RUN_SHOWN), *own, *walls.shown)),
        *(("writable", path) for path in walls.writable),
        *(("writable", mount.target) for mount in walls.own),
        *(("fixed", path) for path in walls.fixed),
    ]
    roots = [Path(os.path.realpath(path)) for path in walls.writable]
    source = {Path(os.path.realpath(mount.target)): mount.source for mount in walls.own}
    real = {Path(os.path.realpath(path)): kind for kind, path in places if os.path.exists(path)}  # noqa: PTH110 - no error where it may not be looked
    closed: list[str] = []
    for path, kind in sorted(real.items(), key=lambda place: len(place[0].parts)):
        if kind == "scratch":
            yield from ("--perms", "1777", "--tmpfs", str(path))
        elif kind == "hidden" and path.is_dir():
            yield from ("--tmpfs", str(path))
            closed.append(str(path))
        elif kind == "hidden":
            yield from ("--dev-bind", os.devnull, str(path))
        elif kind == "writable":
            yield from ("--bind", str(source.get(path, path)), str(path))
        elif _within(path, roots) if kind == "fixed" else _under(path, real):
            yield from ("--ro-bind", str(path), str(path))
    for folder in closed:
        yield from ("--remount-ro", folder)


def _within(path: Path, roots: list[Path]) -> bool:
    """Is it in what is writable? Otherwise an agent put a symlink there, which would show what is hidden."""
    return any(path.is_relative_to(root) for root in roots)


def _under(path: Path, places: dict[Path, str]) -> bool:
    """Is it within something that would be empty otherwise?"""
    return any(places.get(parent) in ("hidden", "scratch") for parent in path.parents)
