"""The `tmux` runtime: each launch is a separate session in Agent Orchestrator's own tmux server.

Guarantees:

- *Started once.* The tmux session is named after session and generation, and tmux refuses a duplicate name; the launcher also writes a
  file that it refuses to overwrite, so even a killed tmux server does not make a launch happen twice.
- *The agent's own pid.* The pane runs a small `sh` file that becomes the agent by `exec`, with exactly the environment given.
- *Delivered once.* A message is checked, pasted and marked as delivered by one tmux command line that the server runs without a pause,
  even if the daemon dies; the mark is an option of the pane. It holds the last message only: a session's messages are delivered one
  after another.
- *Exit is reported at once.* The kernel reports the end of the process; then the pane has the exit status. An agent that survives the
  death of the tmux server (it ignores the hang-up) counts as alive until its process has ended, but nothing can be delivered to it any
  more.
- *A person is typing*: an attached person pressed a key within the last 30 s and neither Enter nor Ctrl-C after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.terminal_output import tail, to_plain_text
from agent_orchestrator.errors import AoError, Conflict, NotFound, Temporary
from agent_orchestrator.plugins.runtimes import launch_checks, single_use_files
from agent_orchestrator.plugins.runtimes.process_tree import stop_process_tree
from agent_orchestrator.plugins.runtimes.screen_text import text_of_log
from agent_orchestrator.plugins.runtimes.tmux_server import (
    HISTORY_LINES,
    Pane,
    ServerGone,
    TmuxServer,
    format_and,
    format_not,
    literal,
    quote_argument,
)
from agent_orchestrator.protocols import (
    Alive,
    Delivered,
    Delivery,
    Gone,
    Handle,
    LaunchSpec,
    Liveness,
    NotReady,
    ProbeFailed,
    Runtime,
    Undeliverable,
)
from agent_orchestrator.protocols.host import Host, ProcessId

TYPING_HOLD_SECONDS = 30
"""Seconds for which keystrokes without Enter hold a message back."""
ENTER_DELAY = 0.6
"""Seconds between a paste and its Enter: programs with bracketed paste drop an Enter that follows at once."""
_EXIT_STATUS_TIMEOUT = 10.0
_LOG_TIMEOUT = 2.0
_EXPORTABLE = re.compile(r"(?!(?:E?UID|PPID|OPTIND|LINENO|_|BASH.*|SHELLOPTS)\Z)[A-Za-z_][A-Za-z0-9_]*")
"""Matches the variables that a shell exports unchanged; others it sets itself, or cannot name."""
_ENTER_TIMEOUT = 10.0


class TmuxRuntime(Runtime):
    """Agents in Agent Orchestrator's own tmux server."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        home = Home(Path(config["home"])) if config.get("home") else Home.from_environment()
        self._host = host
        self._server = TmuxServer(host, home, config.get("program", "tmux"), int(config.get("history", HISTORY_LINES)))

    # -- start ---------------------------------------------------------------------------------------------------------

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the process in a new tmux session, or return the handle of the one that was started before.

        Raises `Temporary` if tmux cannot start it.
        """
        launch_checks.check(spec)
        name = launch_checks.safe_name(spec.session, spec.generation)
        launch = {
            "session": spec.session,
            "generation": str(spec.generation),
            "name": name,
            "private": str(spec.private),
            "log": str(spec.log),
        }
        if _started_file(launch).exists():
            return await self._existing_handle(launch)
        launcher = self._write_launcher(spec, _started_file(launch))
        pipe = "exec cat >>" + shlex.quote(str(spec.log)).replace("#", "##").replace("%", "%%")
        commands = ["new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-s", name, "-c", "/"]
        commands += ["-x", str(spec.columns), "-y", str(spec.rows), "/bin/sh", literal(str(launcher))]
        commands += [";", "set-option", "-p", "-t", f"={name}:", "@ao_name", name]
        commands += [";", "set-option", "-p", "-t", f"={name}:", "@ao_launch", literal(json.dumps(launch))]
        commands += [";", "pipe-pane", "-o", "-t", f"={name}:", literal(pipe)]
        try:
            result = await self._server.create(commands)
        except (AoError, OSError):
            single_use_files.remove_with_retry([launcher])
            raise
        if result.code == 0 and (pane_fields := result.text.split()):
            single_use_files.remove_stale_files(spec.private, "launch")
            pane, pid = pane_fields
            return self._handle(launch, pane, int(pid))
        single_use_files.remove_with_retry([launcher])
        if "duplicate session" in result.error:
            return await self._existing_handle(launch)
        raise Temporary(f"tmux could not start session {spec.session}: {result.error or 'it says nothing'}")

    async def _existing_handle(self, launch: Mapping[str, str]) -> Handle:
        """Return the handle of a launch that was already started, from its pane or from the launcher's file."""
        pane = await self._pane(launch["name"])
        if pane is not None:
            return self._handle(launch, pane.id, pane.pid)
        pid, _ = _recorded_start(launch)
        return self._handle(launch, "", pid)

    def _handle(self, launch: Mapping[str, str], pane: str, pid: int) -> Handle:
        """Return the handle of a launch, from its pane and process."""
        address = {key: launch[key] for key in ("name", "private", "log")}
        address |= {"socket": str(self._server.socket), "pane": pane}
        first_pid, first_started = _recorded_start(launch)
        process = self._host.process(pid)
        # The launcher recorded the start time of a process that has ended since, so a reused pid is not mistaken for it.
        started = first_started if first_pid == pid and first_started else process.started if process else ""
        return Handle(
            runtime="tmux",
            session=launch["session"],
            generation=int(launch["generation"]),
            pid=pid,
            started=started,
            boot_id=self._host.boot_id(),
            address=address,
        )

    def _write_launcher(self, spec: LaunchSpec, started_file: Path) -> Path:
        """Write the script that becomes the agent and return its path.

        It runs in two steps, the second without the pane's environment. No variable is on a command line.
        """
        env = launch_checks.environment(spec, self._server.term)
        exportable = {name: value for name, value in env.items() if _EXPORTABLE.fullmatch(name)}
        unexportable = [f"{name}={value}" for name, value in env.items() if name not in exportable]
        # `env` would take a command with an equals sign for a variable.
        command = [*(["/bin/sh", "-c", 'exec "$0" "$@"'] if "=" in spec.argv[0] else []), *spec.argv]
        stdin = "" if spec.stdin is None else f" <{shlex.quote(str(spec.stdin))}"
        lines = [
            'if [ "$#" -eq 0 ]; then set -C',
            "{ read -r stat </proc/$$/stat; } 2>/dev/null",
            f'printf "%s\\n" "$$" "$stat" >{shlex.quote(str(started_file))} || exit 125',
            f'cd -- {shlex.quote(str(spec.cwd))} || {{ rm -f -- "$0"; exit 126; }}',
            'exec /usr/bin/env -i /bin/sh "$0" inside; fi',
            '/bin/rm -f -- "$0"',
            *(f"unset {name}" for name in ("PWD", "OLDPWD", "SHLVL")),
            *(f"export {name}={shlex.quote(value)}" for name, value in exportable.items()),
            f"exec /usr/bin/env -u _ -- {shlex.join([*unexportable, *command])}{stdin}",
        ]
        text = "\n".join(lines) + "\n"
        spec.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(spec.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return _private_file(spec.private, f"launch.{os.getpid()}.", ".sh", os.fsencode(text))

    # -- read ----------------------------------------------------------------------------------------------------------

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Return whether each agent is alive, from the process table; one tmux call reads the exits of those that have ended."""
        states = [self._liveness(handle) for handle in handles]
        if None not in states:
            return [state for state in states if state]
        try:
            panes = await self._server.panes()
        except ServerGone:
            panes = {}
        except AoError as error:
            return [state or ProbeFailed(error.text) for state in states]
        pairs = zip(handles, states, strict=True)
        return [state or await self._wait_for_exit(handle, panes) for handle, state in pairs]

    def _liveness(self, handle: Handle) -> Liveness | None:
        """Return `Alive` or a lost `Gone`, or None if the process has ended and its exit is not read yet."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        return Alive() if self._host.process(handle.pid) == _process_id(handle) else None

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the kernel to report the end of the process, then return the exit that its pane shows."""
        # Message files may be left by a killed daemon; those that cannot be removed now are removed with the agent.
        with contextlib.suppress(OSError):
            single_use_files.remove_stale_files(Path(handle.address["private"]), "message")
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await self._host.exited(_process_id(handle))
        try:
            end = await self._wait_for_exit(handle)
        except AoError:
            return Gone()
        await self._wait_for_log(handle)
        return end

    async def _wait_for_exit(self, handle: Handle, panes: Mapping[str, Pane] | None = None) -> Gone:
        """Return the exit of an ended process from its pane, once tmux has noticed it too."""
        pause, deadline = 0.005, time.monotonic() + _EXIT_STATUS_TIMEOUT
        while time.monotonic() < deadline:
            pane = await self._pane(handle) if panes is None else panes.get(handle.address["name"])
            if pane is None or pane.pid != handle.pid:
                return Gone(lost=True)
            if pane.process_exit is not None:
                return Gone(pane.process_exit)
            # A server that misses its child's SIGCHLD (utempter consumes it) would never notice the end without another one.
            if server := self._host.process(pane.server):
                self._host.kill(server, signal.SIGCHLD)
            await asyncio.sleep(pause)
            pause, panes = pause * 2, None
        return Gone()

    async def _wait_for_log(self, handle: Handle) -> None:
        """Wait until the log has what the ended process printed last: the program that writes the log is a moment behind tmux.

        The screen is the measure, because tmux has read all output before it reports the end. A screen that was drawn with the
        cursor may never be found in the log, so the wait is short.
        """
        try:
            screen = [line for line in (await self.screen(handle)).splitlines() if line.strip()]
        except (AoError, OSError):
            return
        last_words, log = _without_spaces("".join(screen[-3:])), Path(handle.address["log"])
        deadline = time.monotonic() + _LOG_TIMEOUT
        while time.monotonic() < deadline:
            if last_words in _without_spaces(to_plain_text(tail(log, 16 << 10))):
                return
            await asyncio.sleep(0.01)

    async def _pane(self, launch: Handle | str) -> Pane | None:
        """Return a launch's pane, or None if there is no such pane or no server."""
        try:
            panes = await self._server.panes()
        except ServerGone:
            return None
        return panes.get(launch if isinstance(launch, str) else launch.address["name"])

    async def screen(self, handle: Handle) -> str:
        """Return the visible text; if the terminal is gone, that of the end of its log."""
        pane = handle.address["pane"]
        try:
            output = await self._server.run(
                "display-message", "-p", "-t", pane, "#{@ao_name}", ";", "capture-pane", "-p", "-t", pane
            )
        except ServerGone:
            return await text_of_log(Path(handle.address["log"]))
        name, _, text = output.text.partition("\n")
        return text if name == handle.address["name"] else await text_of_log(Path(handle.address["log"]))

    async def watched(self, handle: Handle) -> bool:
        """Return whether a person is attached to the terminal."""
        format_string = "#{@ao_name} #{session_attached}"
        try:
            output = await self._server.run("display-message", "-p", "-t", handle.address["pane"], format_string)
        except ServerGone:
            return False
        name, _, count = output.text.strip().rpartition(" ")
        return name == handle.address["name"] and count not in ("", "0")

    # -- input ---------------------------------------------------------------------------------------------------------

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Paste a message and press Enter, once per message id, unless something holds it back."""
        if handle.boot_id != self._host.boot_id():
            return Undeliverable("the machine was started anew", ambiguous=True)
        # A file and not a pipe: a pipe whose writer dies in the middle looks like a shorter message.
        private = Path(handle.address["private"])
        single_use_files.remove_stale_files(private, "message")
        file = _private_file(private, f"message.{os.getpid()}.", "", text.encode(errors="replace"))
        try:
            deadline = time.monotonic() + _ENTER_TIMEOUT
            while (result := await self._attempt_delivery(handle, message, file if text else None, enter)) is None:
                if time.monotonic() > deadline:
                    return NotReady("the message before it is still being entered")
                await asyncio.sleep(0.05)
            return result
        except ServerGone:
            return Undeliverable("its tmux server is gone", ambiguous=True)
        finally:
            single_use_files.remove_with_retry([file])  # a failed removal must not change the result of the delivery

    async def _attempt_delivery(self, handle: Handle, message: str, file: Path | None, enter: bool) -> Delivery | None:
        """Try once to deliver the text in `file`, or only Enter without a file.

        Return None if the previous message's Enter is still due.
        """
        pane, name = handle.address["pane"], handle.address["name"]
        key, buffer = _key(message), f"ao-{secrets.token_hex(8)}"
        recent = f"#{{e|<:#{{e|-:{int(time.time())},#{{AO_TYPED}}}},{TYPING_HOLD_SECONDS}}}"
        typing = format_and("#{session_attached}", f"#{{?#{{AO_TYPED}},{recent},0}}")
        is_same_launch, is_delivered = f"#{{==:#{{@ao_name}},{name}}}", f"#{{==:#{{@ao_last}},{key}}}"
        obstacles = (is_delivered, "#{pane_dead}", "#{pane_in_mode}", "#{@ao_due}", typing)
        paste, drop = (f"{verb} -b {buffer}" for verb in ("paste-buffer -p -d", "delete-buffer"))
        write = [f"{paste} -t {pane}"] if file else []
        write += [f"set-option -p -t {pane} @ao_last {key}", *(_delayed_enter_commands(pane) if enter else ())]
        output = await self._server.run(
            *(["load-buffer", "-b", buffer, literal(str(file)), ";"] if file else []),
            *(
                "if-shell",
                "-F",
                "-t",
                pane,
                format_and(is_same_launch, *map(format_not, obstacles)),
                " ; ".join(write),
                drop if file else "",
            ),
            *(";", "display-message", "-p", "-t", pane, "|".join((is_same_launch, *obstacles))),
        )
        if output.code != 0:
            raise Temporary(f"tmux did not take a message for session {handle.session}: {output.error}")
        is_ours, is_done, dead, in_mode, due, is_typing = output.text.strip().split("|")
        if is_ours != "1":
            return Undeliverable("its terminal is gone", ambiguous=True)
        if is_done == "1":
            return Delivered()
        if dead == "1":
            return Undeliverable("the agent has ended")
        if in_mode not in ("", "0"):
            return NotReady("copy mode")
        if is_typing == "1":
            return NotReady("somebody is typing")
        if due:
            return None
        raise Temporary(f"tmux did not paste a message for session {handle.session}")

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys, in the program and not in copy mode; with `once`, that id is stored in an option of the pane and pressed once."""
        pane, key = handle.address["pane"], _key(once) if once else ""
        leave_mode = f"if-shell -F -t {pane} '#{{pane_in_mode}}' 'send-keys -X -t {pane} cancel'"
        remember = f" ; set-option -p -t {pane} @ao_pressed {key}" if once else ""
        await self._run_in_pane(
            handle, f"{leave_mode} ; send-keys -t {pane} -- {' '.join(map(quote_argument, keys))}{remember}", key
        )

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size; a person who attaches changes it again."""
        pane = handle.address["pane"]
        await self._run_in_pane(
            handle, f"resize-window -t {pane} -x {columns:d} -y {rows:d} ; set-option -w -u -t {pane} window-size"
        )

    async def _run_in_pane(self, handle: Handle, commands: str, once: str = "") -> None:
        """Run commands on the handle's pane, if it is live and still this launch's (a new server counts its panes from the start).

        Raises `NotFound` if it is gone, `Conflict` if tmux refuses.
        """
        pane, name = handle.address["pane"], handle.address["name"]
        is_pressed = f"#{{==:#{{@ao_pressed}},{once or '-'}}}"
        condition = format_and(f"#{{==:#{{@ao_name}},{name}}}", format_not("#{pane_dead}"), format_not(is_pressed))
        otherwise = f"display-message -p -t {pane} '#{{?{is_pressed},done,gone}}'"
        try:
            output = await self._server.run("if-shell", "-F", "-t", pane, condition, commands, otherwise)
        except ServerGone:
            raise NotFound(f"the terminal of session {handle.session} is gone", "restore the session") from None
        if output.text.strip() == "gone":
            raise NotFound(f"the agent of session {handle.session} has ended", "restore the session")
        if output.code != 0:
            raise Conflict(f"tmux refused for session {handle.session}: {output.error}")

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """Return the command of tmux's own client; Ctrl-b d detaches."""
        flags = ("-f", "read-only,ignore-size") if watch else ()
        return self._server.client("attach-session", *flags, "-t", f"={handle.address['name']}")

    # -- end -----------------------------------------------------------------------------------------------------------

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started, and return its exit."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await stop_process_tree(self._host, _process_id(handle), grace)
        return await self.ended(handle)

    async def discard(self, handle: Handle) -> None:
        """Remove the launch's tmux session, and no other."""
        try:
            await self._server.run("kill-session", "-t", f"={handle.address['name']}")
        except ServerGone:
            return

    async def orphaned_terminals(self, expected: Sequence[Handle]) -> list[Handle]:
        """Return the handles of the terminals on this server that are not among the expected ones."""
        names = {handle.address["name"] for handle in expected if handle.runtime == "tmux"}
        try:
            panes = await self._server.panes()
        except ServerGone:
            return []
        return [self._handle(pane.launch, pane.id, pane.pid) for name, pane in panes.items() if name not in names]


def _private_file(folder: Path, prefix: str, suffix: str, content: bytes) -> Path:
    """Write a temporary file that only the owner can read and return its path."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, path = tempfile.mkstemp(suffix, prefix, folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
    return Path(path)


def _key(name: str) -> str:
    """Return the short hash under which a message id is stored."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def _without_spaces(text: str) -> str:
    """Return the text without white space, which a screen and its log do not share."""
    return "".join(text.split())


def _process_id(handle: Handle) -> ProcessId:
    """Return the identity of the handle's process."""
    return ProcessId(handle.pid, handle.started)


def _delayed_enter_commands(pane: str) -> tuple[str, str]:
    """Return the tmux commands that press Enter after a pause; `@ao_due` is set until then.

    If the pane is gone by then, nothing is done: tmux would show the error in the next terminal that it opens.
    """
    leave_mode = f'if-shell -F -t {pane} "##{{pane_in_mode}}" "send-keys -X -t {pane} cancel"'
    press_enter = f'"send-keys -t {pane} Enter ; set-option -p -u -t {pane} @ao_due"'
    commands = f'{leave_mode} ; if-shell -F -t {pane} "##{{==:##{{pane_id}},{pane}}}" {press_enter}'
    return (
        f"set-option -p -t {pane} @ao_due 1",
        f"run-shell -b -d {ENTER_DELAY} -t {pane} -C {quote_argument(commands)}",
    )


def _started_file(launch: Mapping[str, str]) -> Path:
    """Return the path of the file that the launcher leaves: its pid (later the agent's), and on Linux the kernel's line about it."""
    return Path(launch["private"], f"started.{launch['generation']}")


def _recorded_start(launch: Mapping[str, str]) -> tuple[int, str]:
    """Return the pid and start time that the launcher has written, or (0, "")."""
    try:
        pid, stat, *_ = [*_started_file(launch).read_text().splitlines(), "", ""]
    except OSError:
        return 0, ""
    fields = stat.rpartition(")")[2].split()
    return int(pid) if pid.isdigit() else 0, fields[19] if len(fields) > 19 else ""
