"""The tmux server of our own: its socket, its configuration, and how its commands are run and read.

It never meets the user's own server: another socket, another configuration, and `TMUX` plays no part. The server is started with
a minimal environment (every program in it could read the server's), outlives the daemon, and ends only when killed.
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
from agent_orchestrator.protocols.host import Completed, Host

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
"""A server that may open no more files computes without end, and answers nobody: it may open as many as can be had."""
_NOT_FOUND = 127
_TERMINFO = ("/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo", "/usr/local/share/terminfo")
_PANE = "#{pid}|#{pane_id}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|#{@ao_launch}"


class ServerGone(Exception):
    """No server listens on our socket."""


@dataclass(frozen=True, slots=True)
class Pane:
    """One agent's pane as the server sees it."""

    server: int
    """The server's own process."""
    id: str
    pid: int
    ended: Exit | None
    """How its process ended; none: the server has not seen it end."""
    launch: Mapping[str, str]
    """What was written down about the launch: session, generation, name, private, log."""


class TmuxServer:
    """Runs tmux commands on the server of one `$AO_HOME`."""

    def __init__(self, host: Host, home: Home, program: str = "tmux", history: int = 5000) -> None:
        self._host = host
        self._program = program
        self._history = history
        self.socket = home.socket("tmux.sock")
        self._configuration = self.socket.with_name("tmux.conf")
        self._starting = asyncio.Lock()
        self._up = False
        self.term = "tmux-256color" if _known_terminal("tmux-256color") else "screen-256color"

    async def create(self, commands: Sequence[str]) -> Completed:
        """Run commands that begin with `new-session`; start the server first where there is none."""
        if self._up:
            answer = await self._run(commands)
            if not _no_server(answer):
                return answer
        async with self._starting:
            self._configure()
            for attempt in range(5):
                answer = await self._run(commands, configuration=self._configuration)
                if not _no_server(answer):
                    self._up = True
                    return answer
                # Killed just now, or another daemon's start lost a race: its socket may still be in the way for a moment.
                await asyncio.sleep(0.02 * 2**attempt)
        raise Temporary(f"tmux could not be started: {answer.error}", f"look whether {self.socket} can be written to")

    async def ask(self, *commands: str) -> Completed:
        """Run commands on the server that is there; raises `ServerGone` if there is none."""
        answer = await self._run(commands)
        if _no_server(answer):
            self._up = False
            raise ServerGone
        return answer

    async def panes(self) -> dict[str, Pane]:
        """All panes of ours, by launch name, in one call."""
        answer = await self.ask("list-panes", "-a", "-F", _PANE)
        if answer.code != 0 and re.search("no current|no sessions", answer.error):
            return {}
        if answer.code != 0:
            raise Temporary(f"tmux does not tell its panes: {answer.error}")
        found = (_parse(line) for line in answer.text.splitlines())
        return {pane.launch["name"]: pane for pane in found if pane is not None}

    def client(self, *commands: str) -> tuple[str, ...]:
        """A command line for a terminal of a person; it reaches our server from anywhere, also from within tmux."""
        return ("env", "-u", "TMUX", "-u", "TMUX_PANE", self._program, "-u", "-N", "-S", str(self.socket), *commands)

    async def _run(self, commands: Sequence[str], configuration: Path | None = None) -> Completed:
        first, last = ([], ["-N"]) if configuration is None else (["/bin/sh", "-c", _START], ["-f", str(configuration)])
        argv = [*first, self._program, "-u", "-S", str(self.socket), *last, *commands]
        with contextlib.suppress(Missing):
            answer = await self._host.run(argv, cwd=Path("/"), env=self._environment(), timeout=20)
            if answer.code != _NOT_FOUND:
                return answer
        raise Missing("tmux is not installed", "install tmux 3.2 or newer, or set `runtime: process`")

    def _configure(self) -> None:
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _CONFIGURATION.format(term=self.term, history=self._history)
        fresh = self._configuration.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(self._configuration)

    def _environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME", "USER", "LOGNAME", "TERMINFO") if name in os.environ
        }
        return {"LANG": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "xterm-256color", **kept}


def literal(argument: str) -> str:
    """An argument that tmux takes as it is: a semicolon at its end would begin the next command."""
    return argument[:-1] + "\\;" if argument.endswith(";") else argument


def quoted(argument: str) -> str:
    """An argument within a command string."""
    return "'" + argument.replace("'", "'\\''") + "'"


def every(*conditions: str) -> str:
    """A format that is true if all of these are."""
    first, *rest = conditions
    return f"#{{&&:{first},{every(*rest)}}}" if rest else first


def negated(condition: str) -> str:
    """A format that is true if this one is not."""
    return f"#{{?{condition},0,1}}"


def _no_server(answer: Completed) -> bool:
    known = r"no server running|error connecting|server exited|lost server|server not found"
    return answer.code != 0 and re.search(known, answer.err.decode(errors="replace")) is not None


def _parse(line: str) -> Pane | None:
    server, pane, pid, dead, status, killed_by, launch = line.split("|", 6)
    if not launch:
        return None
    # The end of its output may come before its exit status.
    told = dead == "1" and (status or killed_by)
    ended = Exit(int(status) if status else None, _signal_number(killed_by)) if told else None
    return Pane(int(server), pane, int(pid), ended, json.loads(launch))


def _signal_number(text: str) -> int | None:
    """tmux names a signal by its number or, in newer versions, by its name."""
    if text.isdigit():
        return int(text)
    named = getattr(signal, "SIG" + text.upper().removeprefix("SIG"), None) if text else None
    return None if named is None else int(named)


def _known_terminal(name: str) -> bool:
    folders = [*filter(None, [os.environ.get("TERMINFO")]), *_TERMINFO]
    return any(Path(folder, part, name).exists() for folder in folders for part in (name[0], f"{ord(name[0]):x}"))
