"""The `docker` runtime: the PTY holder of the `process` runtime with a client of the engine in it, and the agent in a container.

How it keeps its promises beyond those of `process`:

- *Started once.* A container is run by the holder, of which there is never a second one, and has a name of its own for each session
  and generation, which the engine gives away once.
- *Ended, pushed.* The agent's own process is watched by the kernel, as this machine sees it. Where the engine runs in a virtual machine
  it cannot be seen: then its client is watched.
- *Files stay the user's*: the container's user is the one who runs us (`engine.py`).
- *Nothing told to the engine that is a secret*: environment and command are in a script that is removed once it is read (`script.py`).
- *Found again* by labels: our home, session, generation.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import agent_orchestrator
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.runtimes import launch_checks
from agent_orchestrator.plugins.runtimes.docker import engine as engines
from agent_orchestrator.plugins.runtimes.docker.engine import Engine
from agent_orchestrator.plugins.runtimes.docker.images import Image, Images
from agent_orchestrator.plugins.runtimes.docker.mounts import option, private_mounts, workspace_mounts
from agent_orchestrator.plugins.runtimes.docker.network import way
from agent_orchestrator.plugins.runtimes.docker.script import script
from agent_orchestrator.plugins.runtimes.process import TERM, Process, launch_file, launch_of, text_of, write_private
from agent_orchestrator.plugins.runtimes.screen_text import text_of_log
from agent_orchestrator.protocols import Container, Exit, Gone, Handle, LaunchSpec, Mount, Report
from agent_orchestrator.protocols.host import Host, ProcessId

LABEL = "agent-orchestrator"
PIDS = 4096
RUNS_WITHIN = 60.0
"""Seconds that the engine gets to start a container."""
KILLED_WITHIN = 10.0
_ATTEND = Path(__file__).with_name("attend.sh")
_PACKAGE = Path(agent_orchestrator.__file__).parent
_NEVER_TYPED = ",".join(["\udcff"] * 4)
"""A byte that no text has."""
_GONE = (
    "no such container",
    "no container with",
    "is not running",
    "not running",
    "already stopped",
    "can only kill running",
)
_STATE = "{{.State.ExitCode}} {{.State.OOMKilled}}"


class Docker(Process):
    """Agents in containers."""

    name = "docker"
    sockets = "box"

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        super().__init__(config, host)
        self._default: Container = config.get("container") or Container()
        self._images = Images(host)
        self._engines: dict[str, Engine] = {}

    async def _engine(self, wanted: str) -> Engine:
        if wanted not in self._engines:
            self._engines[wanted] = await engines.find(self._host, wanted)
        return self._engines[wanted]

    async def furnish(self, container: Container, report: Report) -> None:
        """Get or build the image."""
        await self._images.get(await self._engine(container.engine), container, report)

    # -- start ---------------------------------------------------------------------------------------------------------

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Make the container and start a holder that starts it, or find what was made and started before."""
        launch_checks.check(spec)
        container = spec.container or self._default
        engine = await self._engine(container.engine)
        launch = self._launch(spec)
        if not launch_file(launch, "holder", ".json").exists():
            options = await self._options(spec, container, engine, launch)
            rules, state = _rules(launch), launch_file(launch, "container", ".exit")
            proxy = (sys.executable, str(rules)) if rules.exists() else ("", "")
            name = self._name(launch)
            argv = ("/bin/sh", str(_ATTEND), engine.name, name, str(state), _NEVER_TYPED, *proxy, *options)
            env = {**engines.client_environment(), "TERM": launch_checks.environment(spec, TERM)["TERM"]}
            await super().launch(replace(spec, argv=argv, env=env, cwd=Path("/"), stdin=None))
        return await self._settled(spec, engine, launch)

    def _name(self, launch: Mapping[str, str]) -> str:
        return f"ao-{self._mark()}-{Path(launch['socket']).stem.removeprefix(f'{self.sockets}-')}"

    def _mark(self) -> str:
        """Names our home to the engine."""
        return hashlib.sha256(os.fsencode(self._home.path)).hexdigest()[:12]

    async def _options(
        self, spec: LaunchSpec, container: Container, engine: Engine, launch: Mapping[str, str]
    ) -> list[str]:
        """Get everything ready that the container needs; returns the options of `run`."""
        image = await self._images.get(engine, container, lambda _line: None)
        home = Path(spec.env.get("HOME", "/"))
        for folder in (spec.private, _inside(spec.private), spec.log.parent, home):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sockets = Path(launch["socket"]).with_suffix(".net")
        if container.network == "allowlist":
            sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        named = replace(container, image=image.name)
        net = way(named, engine, sockets, spec.private / "network.log", image.relay)
        argv, env, own = _command(spec, container)
        for mount in container.mounts:
            _place(mount, spec.private)
        mounts = [*self._mounts(spec, engine, image), *container.mounts, *net.mounts, *own]
        text = script(
            argv,
            {**env, **dict(net.env)},
            started=_started(launch),
            size=(spec.columns, spec.rows),
            stdin=spec.stdin,
            before=net.before,
        )
        write_private(_script(launch), text.encode(errors="surrogateescape"))
        if net.rules:
            write_private(_rules(launch), "\n".join(net.rules).encode(errors="surrogateescape"))
        options = [*_ALWAYS, *_limits(container), *net.options, *engine.owner(), *_mount_options(mounts)]
        labels = {"home": self._mark(), "session": spec.session, "generation": str(spec.generation)}
        labels |= {"private": str(spec.private), "log": str(spec.log)}
        for name, value in labels.items():
            options += ["--label", f"{LABEL}.{name}={value}"]
        return [*options, "--workdir", str(spec.cwd), "--entrypoint", "/bin/sh", image.name, str(_script(launch))]

    def _mounts(self, spec: LaunchSpec, engine: Engine, image: Image) -> list[Mount]:
        spool = spec.env.get("AO_SPOOL")
        found = [*workspace_mounts(spec.cwd), *private_mounts(spec.private, Path(spool) if spool else None)]
        if spec.stdin is not None and not _below(spec.stdin, found):
            found.append(Mount(spec.stdin, spec.stdin))
        uid = os.getuid()
        known = {line.split(":")[2] for line in image.passwd.splitlines() if line.count(":") >= 6}
        if str(uid) not in known and not engine.rootless:
            home = spec.env.get("HOME", "/")
            users = f"{image.passwd.rstrip()}\nagent:x:{uid}:{os.getgid()}::{home}:/bin/sh\n"
            file = spec.private / "passwd"
            write_private(file, users.lstrip().encode())
            file.chmod(0o644)
            found.append(Mount(file, Path("/etc/passwd")))
        return found

    async def _settled(self, spec: LaunchSpec, engine: Engine, launch: Mapping[str, str]) -> Handle:
        """Wait until it runs, note its process, and remove the script that it has read."""
        noted = launch_file(launch, "container", ".json")
        if not noted.exists():
            holder = super()._handle(launch)
            until = time.monotonic() + RUNS_WITHIN
            while not _started(launch).exists() and self._holder_lives(holder) and time.monotonic() < until:
                if super()._exit(holder) is not None:
                    break
                await asyncio.sleep(0.003)
            if not _started(launch).exists() and super()._exit(holder) is not None:
                self._images.forget()
                said = (await text_of_log(spec.log)).strip().splitlines() or ["it does not say why"]
                raise Temporary(
                    f"{engine.name} could not run the container of session {spec.session}: {said[-1].strip()}"
                )
            told = {"engine": engine.name, **self._process_of(launch)}
            if memory := (spec.container or self._default).memory:
                told["memory"] = _size(memory)
            write_private(noted, json.dumps(told).encode())
        _script(launch).unlink(missing_ok=True)
        return self._handle(launch)

    def _process_of(self, launch: Mapping[str, str]) -> dict[str, str]:
        """The agent's process as this machine sees it, if it does: the first that the container's init started."""
        named, after = os.fsencode(_script(launch)), int(super()._handle(launch).address["holder"])
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - for every launch
        for pid in sorted(pids, key=lambda pid: (pid < after, pid)):
            if named not in _bytes_of(f"/proc/{pid}/cmdline").split(b"\0") or _pid_inside(pid) != 1:
                continue
            started = _bytes_of(f"/proc/{pid}/task/{pid}/children").split()
            for agent in filter(None, (self._host.process(int(child)) for child in started[:1])):
                return {"pid": str(agent.pid), "started": agent.started, "inside": str(_pid_inside(agent.pid))}
        return {}

    def _handle(self, launch: Mapping[str, str]) -> Handle:
        """The agent's own process where it can be seen, otherwise the engine's client."""
        handle = super()._handle(launch)
        told = json.loads(text_of(launch_file(launch, "container", ".json")) or "{}")
        own = {"container": self._name(launch), "engine": told.get("engine", ""), "memory": told.get("memory", "")}
        if "pid" not in told:
            return replace(handle, address={**handle.address, **own})
        address = {**handle.address, **own, "inside": told["inside"]}
        return replace(handle, pid=int(told["pid"]), started=told["started"], address=address)

    # -- look ----------------------------------------------------------------------------------------------------------

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the end of its process; whose client alone was seen is ended with it."""
        gone = await super().ended(handle)
        if handle.boot_id != self._host.boot_id():
            return gone
        if "inside" not in handle.address:
            await self._kill(handle, "KILL")
        if gone.exit == Exit():
            return replace(gone, exit=await self._ended_with(handle) or Exit())
        return gone

    def _exit(self, handle: Handle) -> Exit | None:
        """By what the engine's client was told; the client's own end is only that."""
        written = super()._exit(handle)
        code, _, memory = text_of(launch_file(launch_of(handle), "container", ".exit")).strip().partition(" ")
        if code:
            return _exit_of(int(code), memory == "true", handle) if written else None
        if written is None or written.code is None:
            return Exit() if written else None
        return _exit_of(written.code, False, handle)

    async def _ended_with(self, handle: Handle) -> Exit | None:
        """As the engine tells it; none: there is no such container, or it does not answer."""
        argv = [handle.address["engine"] or "docker", "container", "inspect", "--format", _STATE]
        try:
            code, memory = (await self._host.run([*argv, handle.address["container"]])).text.split()
        except (AoError, ValueError):
            return None
        return _exit_of(int(code), memory == "true", handle)

    # -- end -----------------------------------------------------------------------------------------------------------

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the container: asked first, killed after `grace`."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        agent = ProcessId(handle.pid, handle.started)
        if self._host.process(agent.pid) == agent:
            await self._kill(handle, "TERM")
            if not await self._gone_within(agent, grace):
                await self._kill(handle, "KILL")
                await self._gone_within(agent, KILLED_WITHIN)
        else:
            await self._kill(handle, "KILL")
        return await self.ended(handle)

    async def _gone_within(self, process: ProcessId, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._host.exited(process)
        except TimeoutError:
            return False
        return True

    async def _kill(self, handle: Handle, name: str) -> None:
        argv = [handle.address["engine"] or "docker", "kill", "--signal", name, handle.address["container"]]
        await engines.call(self._host, argv, ok=_GONE)

    async def discard(self, handle: Handle) -> None:
        """Forget terminal and container; a container that the engine does not let go of just now is found again by its labels."""
        await super().discard(handle)
        with contextlib.suppress(AoError):
            argv = [handle.address["engine"] or "docker", "rm", "--force", "--volumes", handle.address["container"]]
            await engines.call(self._host, argv, ok=_GONE)
        for file in (_script(launch_of(handle)), _rules(launch_of(handle))):
            file.unlink(missing_ok=True)
        shutil.rmtree(Path(handle.address["socket"]).with_suffix(".net"), ignore_errors=True)

    async def leftovers(self, known: Sequence[Handle]) -> list[Handle]:
        """Holders that no known handle names, and containers that have none."""
        found = await super().leftovers(known)
        names = {handle.address.get("container") for handle in (*known, *found)}
        with contextlib.suppress(AoError):
            engine = await self._engine("auto")
            for container, launch in (await self._labelled(engine)).items():
                if self._name(launch) in names or launch_file(launch, "holder", ".json").exists():
                    continue
                address = {**launch, "holder": "0", "holderStarted": "", "memory": ""}
                address |= {"engine": engine.name, "container": container}
                number = int(launch["generation"])
                found.append(Handle(self.name, launch["session"], number, 0, "", self._host.boot_id(), address))
        return found

    async def _labelled(self, engine: Engine) -> dict[str, dict[str, str]]:
        """What the engine has of ours: by the container's id, the launch it is for."""
        listed = [engine.name, "ps", "--all", "--quiet", "--filter", f"label={LABEL}.home={self._mark()}"]
        ids = (await engines.call(self._host, listed)).text.split()
        if not ids:
            return {}
        shown = [engine.name, "container", "inspect", "--format", "{{.Id}} {{json .Config.Labels}}", *ids]
        found = {}
        for line in (await self._host.run(shown)).text.splitlines():
            container, _, text = line.partition(" ")
            labels = {name.removeprefix(f"{LABEL}."): value for name, value in json.loads(text).items()}
            with contextlib.suppress(KeyError, ValueError):
                private, log = Path(labels["private"]), Path(labels["log"])
                spec = LaunchSpec(labels["session"], int(labels["generation"]), (), Path("/"), {}, private, log)
                found[container] = self._launch(spec)
        return found


_ALWAYS = (
    *("--init", "--pull", "never", "--log-driver", "none", "--pids-limit", str(PIDS)),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *(("--security-opt", "label=disable") if Path("/sys/fs/selinux/enforce").exists() else ()),
)


def _limits(container: Container) -> list[str]:
    found = ["--cpus", f"{container.cpus:g}"] if container.cpus else []
    if container.memory:
        found += ["--memory", str(container.memory), "--memory-swap", str(container.memory)]
    return found


def _mount_options(mounts: Sequence[Mount]) -> list[str]:
    """Each target once, the last word on it; outer ones first."""
    last = {mount.target: mount for mount in mounts}
    ordered = sorted(last.values(), key=lambda mount: len(mount.target.parts))
    return [part for mount in ordered for part in ("--mount", option(mount))]


def _command(spec: LaunchSpec, container: Container) -> tuple[tuple[str, ...], dict[str, str], list[Mount]]:
    """The agent's command as it is inside: our own programs run on the image's Python, any other is looked up there by its name."""
    env, program = launch_checks.environment(spec, TERM), spec.argv[0]
    if program == sys.executable:
        if spec.container is not None:
            env["PYTHONPATH"] = str(_PACKAGE.parent)
        return ("python3", *spec.argv[1:]), env, [Mount(_PACKAGE, _PACKAGE)]
    shown = (spec.cwd, spec.private, *(mount.target for mount in container.mounts))
    hidden = Path(program).is_absolute() and not any(Path(program).is_relative_to(place) for place in shown)
    return (Path(program).name if hidden else program, *spec.argv[1:]), env, []


def _place(mount: Mount, private: Path) -> None:
    """The engine would make a place in its home as root."""
    if not mount.target.is_relative_to(private) or mount.target.exists():
        return
    if mount.source.is_dir():
        mount.target.mkdir(mode=0o700, parents=True)
    else:
        mount.target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mount.target.touch(mode=0o600)


def _below(path: Path, mounts: Sequence[Mount]) -> bool:
    return any(path.is_relative_to(mount.target) for mount in mounts)


def _inside(private: Path) -> Path:
    """The part of the private folder that is the container's own; its home is in it."""
    return private / "container"


def _started(launch: Mapping[str, str]) -> Path:
    return _inside(Path(launch["private"])) / f"started.{launch['generation']}"


def _rules(launch: Mapping[str, str]) -> Path:
    return launch_file(launch, "container", ".rules")


def _script(launch: Mapping[str, str]) -> Path:
    return launch_file(launch, "container", ".sh")


def _bytes_of(path: str) -> bytes:
    """What is in a file; nothing if it is gone."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - read for many processes
            return file.read()
    except OSError:
        return b""


def _pid_inside(pid: int) -> int:
    """The pid that a process of a container sees itself; 0: it is gone."""
    for line in text_of(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0


def _exit_of(code: int, out_of_memory: bool, handle: Handle) -> Exit:
    """A container tells a signal as a shell does."""
    limit = handle.address.get("memory")
    reason = f"it ran out of memory{f' (limit {limit})' if limit else ''}" if out_of_memory else ""
    if 128 < code <= 128 + max(signal.Signals):
        return Exit(signal=code - 128, reason=reason)
    return Exit(code, reason=reason)


def _size(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
