"""Agent Orchestrator's own tmux server: its socket, its configuration, and how its commands are run and their output parsed.

It is separate from the user's server: another socket, another configuration, and `TMUX` is ignored. The server is started with a
minimal environment (every program in it could read the server's), outlives the daemon, and ends only when killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.errors import Missing, Temporary
from agent_orchestrator.protocols import Exit
from agent_orchestrator.protocols.host import Host, ProgramResult

_CONFIGURATION = """\
# Written by Agent Orchestrator for its own tmux server; changes are overwritten.
set-option -s exit-empty on
set-option -s escape-time 0
set-option -s default-terminal {term}
# What an agent prints must reach neither the clipboard nor the outer terminal.
set-option -s set-clipboard off
set-option -gwq allow-passthrough off
# A change of focus would count as typing.
set-option -s focus-events off
set-option -g destroy-unattached off
set-option -g detach-on-destroy on
set-option -g history-limit {history}
set-option -g default-shell /bin/sh
set-option -g update-environment ''
set-option -g mouse off
set-option -g assume-paste-time 0
set-option -g status-interval 0
set-option -g status-left-length 80
set-option -g status-left ' #{{session_name}} '
set-option -g status-right ' Ctrl-b d detaches '
set-option -gw window-status-format ''
set-option -gw window-status-current-format ''
set-option -gw remain-on-exit on
set-option -gwq remain-on-exit-format ''
set-option -gw automatic-rename off
set-option -gw allow-rename off
set-option -gw window-size latest
# Nothing here may end the agent by accident, or leave a person in a shell of the server.
unbind-key -a -T prefix
unbind-key -a -T root
bind-key d detach-client
bind-key C-b send-prefix
bind-key [ copy-mode
bind-key PPage copy-mode -u
# Remember when a person typed something that has not been sent yet; to set an option would draw the whole screen anew.
bind-key -n Any {{ set-environment -h -F AO_TYPED '#{{session_activity}}' ; send-keys }}
bind-key -n Enter {{ set-environment -u AO_TYPED ; send-keys Enter }}
bind-key -n C-c {{ set-environment -u AO_TYPED ; send-keys C-c }}
"""

_START = """\
n=$(ulimit -H -n)
[ "$n" != unlimited ] && [ "$n" -le 65536 ] || n=65536
[ "$(ulimit -S -n)" = unlimited ] || ulimit -S -n "$n" 2>/dev/null
exec "$0" "$@"
"""
"""Raises the limit of open files before tmux starts: a server at its limit uses a whole CPU and stops responding."""
HISTORY_LINES = 5000
"""Lines of output that tmux keeps of an agent, unless the configuration sets `history`."""
_COMMAND_NOT_FOUND = 127
_TERMINFO_FOLDERS = (
    "/etc/terminfo",
    "/lib/terminfo",
    "/usr/lib/terminfo",
    "/usr/share/terminfo",
    "/usr/local/share/terminfo",
)
_PANE_FORMAT = "#{pid}|#{pane_id}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|#{@ao_launch}"


class ServerGone(Exception):
    """Raised when no server listens on the socket."""


@dataclass(frozen=True, slots=True)
class Pane:
    """One agent's pane as the server reports it."""

    server: int
    """The pid of the server."""
    id: str
    pid: int
    process_exit: Exit | None
    """The exit of its process; None until the server has noticed it."""
    launch: Mapping[str, str]
    """The launch's description: session, generation, name, private, log."""


class TmuxServer:
    """Runs tmux commands on the server of one `$AO_HOME`."""

    def __init__(self, host: Host, home: Home, program: str, history: int) -> None:
        self._host = host
        self._program = program
        self._history = history
        self.socket = home.socket("tmux.sock")
        self._configuration = self.socket.with_name("tmux.conf")
        self._start_lock = asyncio.Lock()
        self._is_running = False
        self.term = "tmux-256color" if _has_terminfo("tmux-256color") else "screen-256color"

    async def create(self, commands: Sequence[str]) -> ProgramResult:
        """Run commands that begin with `new-session`, starting the server first if none runs.

        Raises `Temporary` if it cannot be started.
        """
        if self._is_running:
            result = await self._run_tmux(commands)
            if not _is_server_missing(result):
                return result
        async with self._start_lock:
            self._configure()
            for attempt in range(5):
                result = await self._run_tmux(commands, configuration=self._configuration)
                if not _is_server_missing(result):
                    self._is_running = True
                    return result
                # The server was killed, or lost a race with another daemon's start: the old socket may block for a moment.
                await asyncio.sleep(0.02 * 2**attempt)
        raise Temporary(f"tmux could not be started: {result.error}", f"look whether {self.socket} can be written to")

    async def run(self, *commands: str) -> ProgramResult:
        """Run commands on the running server; raises `ServerGone` if there is none."""
        result = await self._run_tmux(commands)
        if _is_server_missing(result):
            self._is_running = False
            raise ServerGone
        return result

    async def panes(self) -> dict[str, Pane]:
        """Return all panes of this server's launches, by launch name, in one call."""
        result = await self.run("list-panes", "-a", "-F", _PANE_FORMAT)
        if result.code != 0 and re.search("no current|no sessions", result.error):
            return {}
        if result.code != 0:
            raise Temporary(f"tmux does not tell its panes: {result.error}")
        parsed_panes = (_parse_pane(line) for line in result.text.splitlines())
        return {pane.launch["name"]: pane for pane in parsed_panes if pane is not None}

    def client(self, *commands: str) -> tuple[str, ...]:
        """Return a command line for a person's terminal; it reaches this server from anywhere, also from within tmux."""
        return ("env", "-u", "TMUX", "-u", "TMUX_PANE", self._program, "-u", "-N", "-S", str(self.socket), *commands)

    async def _run_tmux(self, commands: Sequence[str], configuration: Path | None = None) -> ProgramResult:
        """Run tmux with these commands, with `configuration` to start a server; raises `Missing` if tmux is not installed."""
        prefix, options = (
            ([], ["-N"]) if configuration is None else (["/bin/sh", "-c", _START], ["-f", str(configuration)])
        )
        argv = [*prefix, self._program, "-u", "-S", str(self.socket), *options, *commands]
        with contextlib.suppress(Missing):
            result = await self._host.run(argv, cwd=Path("/"), env=self._environment(), timeout=20)
            if result.code != _COMMAND_NOT_FOUND:
                return result
        raise Missing("tmux is not installed", "install tmux 3.2 or newer, or set `runtime: process`")

    def _configure(self) -> None:
        """Write the server's configuration file."""
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _CONFIGURATION.format(term=self.term, history=self._history)
        temporary = self._configuration.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(self._configuration)

    def _environment(self) -> dict[str, str]:
        """Return the minimal environment of the server and its clients."""
        inherited = {
            name: os.environ[name] for name in ("PATH", "HOME", "USER", "LOGNAME", "TERMINFO") if name in os.environ
        }
        return {"LANG": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "xterm-256color", **inherited}


def literal(argument: str) -> str:
    """Return an argument escaped so that tmux takes it unchanged: a semicolon at its end would begin the next command."""
    return argument[:-1] + "\\;" if argument.endswith(";") else argument


def quote_argument(argument: str) -> str:
    """Return an argument quoted for a command string."""
    return "'" + argument.replace("'", "'\\''") + "'"


def format_and(*conditions: str) -> str:
    """Return a tmux format that is true if all of these are."""
    first, *rest = conditions
    return f"#{{&&:{first},{format_and(*rest)}}}" if rest else first


def format_not(condition: str) -> str:
    """Return a tmux format that is true if this one is not."""
    return f"#{{?{condition},0,1}}"


def _is_server_missing(result: ProgramResult) -> bool:
    """Return whether a command failed because no server runs."""
    messages = r"no server running|error connecting|server exited|lost server|server not found"
    return result.code != 0 and re.search(messages, result.err.decode(errors="replace")) is not None


def _parse_pane(line: str) -> Pane | None:
    """Parse one line of `list-panes`; None if the pane is not a launch."""
    server, pane, pid, dead, status, killed_by, launch = line.split("|", 6)
    if not launch:
        return None
    # tmux may report a pane as dead before it has the exit status.
    has_status = dead == "1" and (status or killed_by)
    ended = Exit(int(status) if status else None, _signal_number(killed_by)) if has_status else None
    return Pane(int(server), pane, int(pid), ended, json.loads(launch))


def _signal_number(text: str) -> int | None:
    """Return a signal's number; tmux gives the number or, in newer versions, the name."""
    if text.isdigit():
        return int(text)
    number = getattr(signal, "SIG" + text.upper().removeprefix("SIG"), None) if text else None
    return None if number is None else int(number)


def _has_terminfo(name: str) -> bool:
    """Return whether this machine's terminfo database has this terminal."""
    folders = [*filter(None, [os.environ.get("TERMINFO")]), *_TERMINFO_FOLDERS]
    return any(Path(folder, part, name).exists() for folder in folders for part in (name[0], f"{ord(name[0]):x}"))
