"""The `tmux` runtime: each launch is a session of its own in a tmux server of ours.

How it keeps its promises:

- *Started once.* The tmux session is named after session and generation, which tmux allows once; the launcher also leaves a file that
  it refuses to overwrite, so that not even a killed tmux server makes a launch happen twice.
- *The agent's own pid.* The pane runs a small `sh` file that turns into the agent by `exec`, with exactly the environment given.
- *Delivered once.* A message is checked, pasted and marked by one tmux command line that the server runs without a pause, even if
  the daemon dies; the mark is an option of the pane. It holds the last message: a session's messages come one after another.
- *Ended, pushed.* The kernel tells the end of the process; then the pane says how. An agent that survives the death of the tmux
  server (it ignores the hang-up) counts as alive until its process has ended, but nothing can be delivered to it any more.
- *Somebody is typing*: an attached person pressed a key within the last 30 s and neither Enter nor Ctrl-C after it.
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
from agent_orchestrator.errors import AoError, Conflict, NotFound, Temporary
from agent_orchestrator.plugins.runtimes import launch_checks
from agent_orchestrator.plugins.runtimes.process_tree import stop_family
from agent_orchestrator.plugins.runtimes.screen_text import text_of_log
from agent_orchestrator.plugins.runtimes.tmux_server import (
    Pane,
    ServerGone,
    TmuxServer,
    every,
    literal,
    negated,
    quoted,
)
from agent_orchestrator.protocols import (
    Alive,
    Delivered,
    Delivery,
    Gone,
    Handle,
    Held,
    LaunchSpec,
    Liveness,
    Undeliverable,
    Unseen,
)
from agent_orchestrator.protocols.host import Host, ProcessId

TYPING_COUNTS = 30
"""Seconds that keystrokes without Enter hold a message back."""
ENTER_AFTER = 0.6
"""Seconds between a paste and its Enter: programs with bracketed paste drop an Enter that comes at once."""
_SETTLES_WITHIN = 10.0
_PLAIN = re.compile(r"(?!(?:E?UID|PPID|OPTIND|LINENO|_|BASH.*|SHELLOPTS)\Z)[A-Za-z_][A-Za-z0-9_]*")
"""Variables that a shell sets for others as it is told; the rest it keeps for itself, or has no name for."""
_ENTER_WITHIN = 10.0


class Tmux:
    """Agents in a tmux server of our own."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        home = Home(Path(config["home"])) if config.get("home") else Home.here()
        self._host = host
        self._server = TmuxServer(host, home, config.get("program", "tmux"), int(config.get("history", 5000)))

    # -- start ---------------------------------------------------------------------------------------------------------

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the process in a tmux session of its own, or find the one that was started before."""
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
            return await self._launched_before(launch)
        launcher = self._write_launcher(spec, _started_file(launch))
        pipe = "exec cat >>" + shlex.quote(str(spec.log)).replace("#", "##").replace("%", "%%")
        commands = ["new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-s", name, "-c", "/"]
        commands += ["-x", str(spec.columns), "-y", str(spec.rows), "/bin/sh", literal(str(launcher))]
        commands += [";", "set-option", "-p", "-t", f"={name}:", "@ao_name", name]
        commands += [";", "set-option", "-p", "-t", f"={name}:", "@ao_launch", literal(json.dumps(launch))]
        commands += [";", "pipe-pane", "-o", "-t", f"={name}:", literal(pipe)]
        try:
            answer = await self._server.create(commands)
        except (AoError, OSError):
            launch_checks.remove_surely([launcher])
            raise
        if answer.code == 0 and (told := answer.text.split()):
            launch_checks.forget_others(spec.private, "launch")
            pane, pid = told
            return self._handle(launch, pane, int(pid))
        launch_checks.remove_surely([launcher])
        if "duplicate session" in answer.error:
            return await self._launched_before(launch)
        raise Temporary(f"tmux could not start session {spec.session}: {answer.error or 'it says nothing'}")

    async def _launched_before(self, launch: Mapping[str, str]) -> Handle:
        pane = await self._pane(launch["name"])
        if pane is not None:
            return self._handle(launch, pane.id, pane.pid)
        pid, _ = _first_seen(launch)
        return self._handle(launch, "", pid)

    def _handle(self, launch: Mapping[str, str], pane: str, pid: int) -> Handle:
        address = {key: launch[key] for key in ("name", "private", "log")}
        address |= {"socket": str(self._server.socket), "pane": pane}
        first_pid, first_started = _first_seen(launch)
        process = self._host.process(pid)
        # One that has ended by now was seen by its launcher; a pid that means somebody else today is not taken for it.
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

    def _write_launcher(self, spec: LaunchSpec, started: Path) -> Path:
        """A script in two steps, the second without anything of the pane's environment. No variable is on a command line."""
        env = launch_checks.environment(spec, self._server.term)
        plain = {name: value for name, value in env.items() if _PLAIN.fullmatch(name)}
        odd = [f"{name}={value}" for name, value in env.items() if name not in plain]
        # `env` would take a command with an equals sign for a variable.
        command = [*(["/bin/sh", "-c", 'exec "$0" "$@"'] if "=" in spec.argv[0] else []), *spec.argv]
        stdin = "" if spec.stdin is None else f" <{shlex.quote(str(spec.stdin))}"
        lines = [
            'if [ "$#" -eq 0 ]; then set -C',
            "{ read -r stat </proc/$$/stat; } 2>/dev/null",
            f'printf "%s\\n" "$$" "$stat" >{shlex.quote(str(started))} || exit 125',
            f'cd -- {shlex.quote(str(spec.cwd))} || {{ rm -f -- "$0"; exit 126; }}',
            'exec /usr/bin/env -i /bin/sh "$0" inside; fi',
            '/bin/rm -f -- "$0"',
            *(f"unset {name}" for name in ("PWD", "OLDPWD", "SHLVL")),
            *(f"export {name}={shlex.quote(value)}" for name, value in plain.items()),
            f"exec /usr/bin/env -u _ -- {shlex.join([*odd, *command])}{stdin}",
        ]
        text = "\n".join(lines) + "\n"
        spec.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(spec.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return _private_file(spec.private, f"launch.{os.getpid()}.", ".sh", os.fsencode(text))

    # -- look ----------------------------------------------------------------------------------------------------------

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Look at the processes; one tmux call tells how those ended that have."""
        found = [self._liveness(handle) for handle in handles]
        if None not in found:
            return [state for state in found if state]
        try:
            panes = await self._server.panes()
        except ServerGone:
            panes = {}
        except AoError as error:
            return [state or Unseen(error.text) for state in found]
        pairs = zip(handles, found, strict=True)
        return [state or await self._how_it_ended(handle, panes) for handle, state in pairs]

    def _liveness(self, handle: Handle) -> Liveness | None:
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        return Alive() if self._host.process(handle.pid) == _process(handle) else None

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the kernel to tell the end of the process, then read from its pane how it ended."""
        with contextlib.suppress(OSError):  # of a daemon that was killed; what cannot go now goes with the agent
            launch_checks.forget_others(Path(handle.address["private"]), "message")
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await self._host.exited(_process(handle))
        try:
            return await self._how_it_ended(handle)
        except AoError:
            return Gone()

    async def _how_it_ended(self, handle: Handle, panes: Mapping[str, Pane] | None = None) -> Gone:
        """For an ended process: what its pane says, once tmux has noticed too."""
        pause, until = 0.005, time.monotonic() + _SETTLES_WITHIN
        while time.monotonic() < until:
            pane = await self._pane(handle) if panes is None else panes.get(handle.address["name"])
            if pane is None or pane.pid != handle.pid:
                return Gone(lost=True)
            if pane.ended is not None:
                return Gone(pane.ended)
            # A server that misses the signal of its child's end (utempter takes it away) waits for another one for ever.
            if server := self._host.process(pane.server):
                self._host.kill(server, signal.SIGCHLD)
            await asyncio.sleep(pause)
            pause, panes = pause * 2, None
        return Gone()

    async def _pane(self, launch: Handle | str) -> Pane | None:
        try:
            panes = await self._server.panes()
        except ServerGone:
            return None
        return panes.get(launch if isinstance(launch, str) else launch.address["name"])

    async def screen(self, handle: Handle) -> str:
        """The visible text; of a terminal that is gone, the end of its log."""
        pane = handle.address["pane"]
        try:
            answer = await self._server.ask(
                "display-message", "-p", "-t", pane, "#{@ao_name}", ";", "capture-pane", "-p", "-t", pane
            )
        except ServerGone:
            return await text_of_log(Path(handle.address["log"]))
        name, _, text = answer.text.partition("\n")
        return text if name == handle.address["name"] else await text_of_log(Path(handle.address["log"]))

    async def watched(self, handle: Handle) -> bool:
        """Is a person attached to it?"""
        form = "#{@ao_name} #{session_attached}"
        try:
            answer = await self._server.ask("display-message", "-p", "-t", handle.address["pane"], form)
        except ServerGone:
            return False
        name, _, count = answer.text.strip().rpartition(" ")
        return name == handle.address["name"] and count not in ("", "0")

    # -- talk ----------------------------------------------------------------------------------------------------------

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Paste a message and press Enter, once for each message id, unless something holds it."""
        if handle.boot_id != self._host.boot_id():
            return Undeliverable("the machine was started anew", ambiguous=True)
        # A file and not a pipe: a pipe whose writer dies in the middle looks like a shorter message.
        private = Path(handle.address["private"])
        launch_checks.forget_others(private, "message")
        file = _private_file(private, f"message.{os.getpid()}.", "", text.encode(errors="replace"))
        try:
            until = time.monotonic() + _ENTER_WITHIN
            while (result := await self._try(handle, message, file if text else None, enter)) is None:
                if time.monotonic() > until:
                    return Held("the message before it is still being entered")
                await asyncio.sleep(0.05)
            return result
        except ServerGone:
            return Undeliverable("its tmux server is gone", ambiguous=True)
        finally:
            launch_checks.remove_surely([file])  # what was typed was typed, whether it can be removed now or not

    async def _try(self, handle: Handle, message: str, file: Path | None, enter: bool) -> Delivery | None:
        """One attempt, without a file only Enter; none: the Enter of the message before it is still due."""
        pane, name = handle.address["pane"], handle.address["name"]
        key, buffer = _key(message), f"ao-{secrets.token_hex(8)}"
        recent = f"#{{e|<:#{{e|-:{int(time.time())},#{{AO_TYPED}}}},{TYPING_COUNTS}}}"
        typing = every("#{session_attached}", f"#{{?#{{AO_TYPED}},{recent},0}}")
        ours, done = f"#{{==:#{{@ao_name}},{name}}}", f"#{{==:#{{@ao_last}},{key}}}"
        obstacles = (done, "#{pane_dead}", "#{pane_in_mode}", "#{@ao_due}", typing)
        paste, drop = (f"{verb} -b {buffer}" for verb in ("paste-buffer -p -d", "delete-buffer"))
        write = [f"{paste} -t {pane}"] if file else []
        write += [f"set-option -p -t {pane} @ao_last {key}", *(_enter_later(pane) if enter else ())]
        answer = await self._server.ask(
            *(["load-buffer", "-b", buffer, literal(str(file)), ";"] if file else []),
            *(
                "if-shell",
                "-F",
                "-t",
                pane,
                every(ours, *map(negated, obstacles)),
                " ; ".join(write),
                drop if file else "",
            ),
            *(";", "display-message", "-p", "-t", pane, "|".join((ours, *obstacles))),
        )
        if answer.code != 0:
            raise Temporary(f"tmux did not take a message for session {handle.session}: {answer.error}")
        is_ours, is_done, dead, in_mode, due, is_typing = answer.text.strip().split("|")
        if is_ours != "1":
            return Undeliverable("its terminal is gone", ambiguous=True)
        if is_done == "1":
            return Delivered()
        if dead == "1":
            return Undeliverable("the agent has ended")
        if in_mode not in ("", "0"):
            return Held("copy mode")
        if is_typing == "1":
            return Held("somebody is typing")
        if due:
            return None
        raise Temporary(f"tmux did not paste a message for session {handle.session}")

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys, in the program and not in copy mode; what was pressed once last is an option of the pane."""
        pane, key = handle.address["pane"], _key(once) if once else ""
        leave_mode = f"if-shell -F -t {pane} '#{{pane_in_mode}}' 'send-keys -X -t {pane} cancel'"
        remember = f" ; set-option -p -t {pane} @ao_pressed {key}" if once else ""
        await self._act(handle, f"{leave_mode} ; send-keys -t {pane} -- {' '.join(map(quoted, keys))}{remember}", key)

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size; a person who attaches changes it again."""
        pane = handle.address["pane"]
        await self._act(
            handle, f"resize-window -t {pane} -x {columns:d} -y {rows:d} ; set-option -w -u -t {pane} window-size"
        )

    async def _act(self, handle: Handle, commands: str, once: str = "") -> None:
        """Run commands on a live pane that is still the one meant: a new server counts its panes from the start."""
        pane, name = handle.address["pane"], handle.address["name"]
        done = f"#{{==:#{{@ao_pressed}},{once or '-'}}}"
        wanted = every(f"#{{==:#{{@ao_name}},{name}}}", negated("#{pane_dead}"), negated(done))
        otherwise = f"display-message -p -t {pane} '#{{?{done},done,gone}}'"
        try:
            answer = await self._server.ask("if-shell", "-F", "-t", pane, wanted, commands, otherwise)
        except ServerGone:
            raise NotFound(f"the terminal of session {handle.session} is gone", "restore the session") from None
        if answer.text.strip() == "gone":
            raise NotFound(f"the agent of session {handle.session} has ended", "restore the session")
        if answer.code != 0:
            raise Conflict(f"tmux refused for session {handle.session}: {answer.error}")

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """tmux's own client; Ctrl-b d detaches."""
        flags = ("-f", "read-only,ignore-size") if watch else ()
        return self._server.client("attach-session", *flags, "-t", f"={handle.address['name']}")

    # -- end -----------------------------------------------------------------------------------------------------------

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await stop_family(self._host, _process(handle), grace)
        return await self.ended(handle)

    async def discard(self, handle: Handle) -> None:
        """Remove its tmux session, and no other."""
        try:
            await self._server.ask("kill-session", "-t", f"={handle.address['name']}")
        except ServerGone:
            return

    async def leftovers(self, known: Sequence[Handle]) -> list[Handle]:
        """Agents on our server that no known handle names."""
        names = {handle.address["name"] for handle in known if handle.runtime == "tmux"}
        try:
            panes = await self._server.panes()
        except ServerGone:
            return []
        return [self._handle(pane.launch, pane.id, pane.pid) for name, pane in panes.items() if name not in names]


def _private_file(folder: Path, prefix: str, suffix: str, content: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, path = tempfile.mkstemp(suffix, prefix, folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
    return Path(path)


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def _process(handle: Handle) -> ProcessId:
    return ProcessId(handle.pid, handle.started)


def _enter_later(pane: str) -> tuple[str, str]:
    """Commands that press Enter after a pause, by the server alone; `@ao_due` is set until then.

    In a pane that is gone by then, nothing is done: tmux would show the error in the next terminal that it opens.
    """
    leave_mode = f'if-shell -F -t {pane} "##{{pane_in_mode}}" "send-keys -X -t {pane} cancel"'
    press = f'"send-keys -t {pane} Enter ; set-option -p -u -t {pane} @ao_due"'
    then = f'{leave_mode} ; if-shell -F -t {pane} "##{{==:##{{pane_id}},{pane}}}" {press}'
    return f"set-option -p -t {pane} @ao_due 1", f"run-shell -b -d {ENTER_AFTER} -t {pane} -C {quoted(then)}"


def _started_file(launch: Mapping[str, str]) -> Path:
    """Left by the launcher: its pid, and on Linux what the kernel says of it. It will be the agent's."""
    return Path(launch["private"], f"started.{launch['generation']}")


def _first_seen(launch: Mapping[str, str]) -> tuple[int, str]:
    try:
        pid, stat, *_ = [*_started_file(launch).read_text().splitlines(), "", ""]
    except OSError:
        return 0, ""
    fields = stat.rpartition(")")[2].split()
    return int(pid) if pid.isdigit() else 0, fields[19] if len(fields) > 19 else ""
