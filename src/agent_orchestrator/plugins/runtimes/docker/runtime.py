"""The `docker` runtime: the PTY holder of the `process` runtime runs a client of the engine, and the agent runs in a container.

Guarantees beyond those of `process`:

- *Started once.* A container is run by the holder, of which there is never a second one, and has a separate name for each session and
  generation, which the engine accepts once.
- *Exit is reported at once.* The kernel reports the end of the agent's own process, as this machine sees it. If the engine runs in a
  virtual machine that process is not visible: then its client is watched.
- *Files stay the user's*: the container's user is the one who runs the daemon (`engine.py`).
- *No secret is passed to the engine*: environment and command are in a script that is removed once it is read (`script.py`).
- *Found again* by labels: home, session, generation.
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
from agent_orchestrator.plugins.runtimes.docker.mounts import mount_option, private_mounts, workspace_mounts
from agent_orchestrator.plugins.runtimes.docker.network import network_setup
from agent_orchestrator.plugins.runtimes.docker.script import script
from agent_orchestrator.plugins.runtimes.process import (
    TERM,
    ProcessRuntime,
    launch_file,
    launch_from_handle,
    read_text,
    write_private,
)
from agent_orchestrator.plugins.runtimes.screen_text import text_of_log
from agent_orchestrator.protocols import Container, Exit, Gone, Handle, LaunchSpec, LineCallback, Mount
from agent_orchestrator.protocols.host import Host, ProcessId

LABEL = "agent-orchestrator"
MAX_PROCESSES = 4096
START_TIMEOUT = 60.0
"""Seconds that the engine gets to start a container."""
KILL_TIMEOUT = 10.0
_ATTEND = Path(__file__).with_name("attend.sh")
_PACKAGE = Path(agent_orchestrator.__file__).parent
_DETACH_KEYS = ",".join(["\udcff"] * 4)
"""Keys that detach the engine's client: a byte that no text contains, so that nothing typed detaches it."""
_GONE_ERRORS = (
    "no such container",
    "no container with",
    "is not running",
    "not running",
    "already stopped",
    "can only kill running",
)
_STATE_FORMAT = "{{.State.ExitCode}} {{.State.OOMKilled}}"


class DockerRuntime(ProcessRuntime):
    """Agents in containers."""

    name = "docker"
    socket_prefix = "box"

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        super().__init__(config, host)
        self._default: Container = config.get("container") or Container()
        self._images = Images(host)
        self._engines: dict[str, Engine] = {}

    async def _engine(self, configured_name: str) -> Engine:
        """Return the engine with this configured name; it is looked up once."""
        if configured_name not in self._engines:
            self._engines[configured_name] = await engines.find_engine(self._host, configured_name)
        return self._engines[configured_name]

    async def prepare_image(self, container: Container, report: LineCallback) -> None:
        """Get or build the image."""
        await self._images.get(await self._engine(container.engine), container, report)

    # -- start ---------------------------------------------------------------------------------------------------------

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Make the container and start a holder that runs it, or return the handle of what was started before."""
        launch_checks.check(spec)
        container = spec.container or self._default
        engine = await self._engine(container.engine)
        launch = self._launch(spec)
        if not launch_file(launch, "holder", ".json").exists():
            options = await self._options(spec, container, engine, launch)
            rules, state = _rules_file(launch), launch_file(launch, "container", ".exit")
            proxy = (sys.executable, str(rules)) if rules.exists() else ("", "")
            name = self._name(launch)
            argv = ("/bin/sh", str(_ATTEND), engine.name, name, str(state), _DETACH_KEYS, *proxy, *options)
            env = {**engines.client_environment(), "TERM": launch_checks.environment(spec, TERM)["TERM"]}
            await super().launch(replace(spec, argv=argv, env=env, cwd=Path("/"), stdin=None))
        return await self._wait_until_running(spec, engine, launch)

    def _name(self, launch: Mapping[str, str]) -> str:
        """Return the container's name."""
        return f"ao-{self._home_hash()}-{Path(launch['socket']).stem.removeprefix(f'{self.socket_prefix}-')}"

    def _home_hash(self) -> str:
        """Return a hash that identifies this home in labels and names."""
        return hashlib.sha256(os.fsencode(self._home.path)).hexdigest()[:12]

    async def _options(
        self, spec: LaunchSpec, container: Container, engine: Engine, launch: Mapping[str, str]
    ) -> list[str]:
        """Prepare everything that the container needs; return the options of the engine's `run`."""
        image = await self._images.get(engine, container, lambda _line: None)
        home = Path(spec.env.get("HOME", "/"))
        for folder in (spec.private, _container_folder(spec.private), spec.log.parent, home):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sockets = Path(launch["socket"]).with_suffix(".net")
        if container.network == "allowlist":
            sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        container_with_image = replace(container, image=image.name)
        network = network_setup(container_with_image, engine, sockets, spec.private / "network.log", image.relay)
        argv, env, program_mounts = _command(spec, container)
        for mount in container.mounts:
            _make_mount_point(mount, spec.private)
        mounts = [*self._mounts(spec, engine, image), *container.mounts, *network.mounts, *program_mounts]
        content = script(
            argv,
            {**env, **dict(network.env)},
            started=_started_file(launch),
            size=(spec.columns, spec.rows),
            stdin=spec.stdin,
            before=network.script_lines,
        )
        write_private(_script_file(launch), content.encode(errors="surrogateescape"))
        if network.rules:
            write_private(_rules_file(launch), "\n".join(network.rules).encode(errors="surrogateescape"))
        options = [
            *_FIXED_OPTIONS,
            *_limit_options(container),
            *network.options,
            *engine.user_options(),
            *_mount_options(mounts),
        ]
        labels = {"home": self._home_hash(), "session": spec.session, "generation": str(spec.generation)}
        labels |= {"private": str(spec.private), "log": str(spec.log)}
        for name, value in labels.items():
            options += ["--label", f"{LABEL}.{name}={value}"]
        return [*options, "--workdir", str(spec.cwd), "--entrypoint", "/bin/sh", image.name, str(_script_file(launch))]

    def _mounts(self, spec: LaunchSpec, engine: Engine, image: Image) -> list[Mount]:
        """Return the container's mounts; adds an `/etc/passwd` with the user if the image does not have that user."""
        spool = spec.env.get("AO_SPOOL")
        mounts = [*workspace_mounts(spec.cwd), *private_mounts(spec.private, Path(spool) if spool else None)]
        if spec.stdin is not None and not _is_mounted(spec.stdin, mounts):
            mounts.append(Mount(spec.stdin, spec.stdin))
        uid = os.getuid()
        image_uids = {line.split(":")[2] for line in image.passwd.splitlines() if line.count(":") >= 6}
        if str(uid) not in image_uids and not engine.rootless:
            home = spec.env.get("HOME", "/")
            users = f"{image.passwd.rstrip()}\nagent:x:{uid}:{os.getgid()}::{home}:/bin/sh\n"
            file = spec.private / "passwd"
            write_private(file, users.lstrip().encode())
            file.chmod(0o644)
            mounts.append(Mount(file, Path("/etc/passwd")))
        return mounts

    async def _wait_until_running(self, spec: LaunchSpec, engine: Engine, launch: Mapping[str, str]) -> Handle:
        """Wait until the container runs, record its process, and remove the script that it has read.

        Raises `Temporary` if it cannot run.
        """
        record_file = launch_file(launch, "container", ".json")
        if not record_file.exists():
            holder = super()._handle(launch)
            deadline = time.monotonic() + START_TIMEOUT
            while not _started_file(launch).exists() and self._holder_lives(holder) and time.monotonic() < deadline:
                if super()._exit(holder) is not None:
                    break
                await asyncio.sleep(0.003)
            if not _started_file(launch).exists() and super()._exit(holder) is not None:
                self._images.recheck()
                log_lines = (await text_of_log(spec.log)).strip().splitlines() or ["it does not say why"]
                raise Temporary(
                    f"{engine.name} could not run the container of session {spec.session}: {log_lines[-1].strip()}"
                )
            container_record = {"engine": engine.name, **self._find_agent_process(launch)}
            if memory := (spec.container or self._default).memory:
                container_record["memory"] = _format_size(memory)
            write_private(record_file, json.dumps(container_record).encode())
        _script_file(launch).unlink(missing_ok=True)
        return self._handle(launch)

    def _find_agent_process(self, launch: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's process as this machine sees it, the first child of the container's init; empty if it is not visible."""
        script_path, holder_pid = os.fsencode(_script_file(launch)), int(super()._handle(launch).address["holder"])
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - for every launch
        for pid in sorted(pids, key=lambda pid: (pid < holder_pid, pid)):
            if script_path not in _read_bytes(f"/proc/{pid}/cmdline").split(b"\0") or _pid_inside(pid) != 1:
                continue
            children = _read_bytes(f"/proc/{pid}/task/{pid}/children").split()
            for agent in filter(None, (self._host.process(int(child)) for child in children[:1])):
                return {"pid": str(agent.pid), "started": agent.started, "inside": str(_pid_inside(agent.pid))}
        return {}

    def _handle(self, launch: Mapping[str, str]) -> Handle:
        """Return a handle of the agent's own process if it is visible, otherwise of the engine's client."""
        handle = super()._handle(launch)
        container_record = json.loads(read_text(launch_file(launch, "container", ".json")) or "{}")
        container_fields = {
            "container": self._name(launch),
            "engine": container_record.get("engine", ""),
            "memory": container_record.get("memory", ""),
        }
        if "pid" not in container_record:
            return replace(handle, address={**handle.address, **container_fields})
        address = {**handle.address, **container_fields, "inside": container_record["inside"]}
        return replace(handle, pid=int(container_record["pid"]), started=container_record["started"], address=address)

    # -- read ----------------------------------------------------------------------------------------------------------

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the end of the process and return its exit; if only the client was visible, the container is killed too."""
        gone = await super().ended(handle)
        if handle.boot_id != self._host.boot_id():
            return gone
        if "inside" not in handle.address:
            await self._kill(handle, "KILL")
        if gone.exit == Exit():
            return replace(gone, exit=await self._exit_from_engine(handle) or Exit())
        return gone

    def _exit(self, handle: Handle) -> Exit | None:
        """Return the exit status that the engine's client was given; the client's own exit only shows that it has ended."""
        client_exit = super()._exit(handle)
        code, _, memory = (
            read_text(launch_file(launch_from_handle(handle), "container", ".exit")).strip().partition(" ")
        )
        if code:
            return _to_exit(int(code), memory == "true", handle) if client_exit else None
        if client_exit is None or client_exit.code is None:
            return Exit() if client_exit else None
        return _to_exit(client_exit.code, False, handle)

    async def _exit_from_engine(self, handle: Handle) -> Exit | None:
        """Return the exit that the engine reports; None if there is no such container or the engine does not respond."""
        argv = [handle.address["engine"] or "docker", "container", "inspect", "--format", _STATE_FORMAT]
        try:
            code, memory = (await self._host.run([*argv, handle.address["container"]])).text.split()
        except (AoError, ValueError):
            return None
        return _to_exit(int(code), memory == "true", handle)

    # -- end -----------------------------------------------------------------------------------------------------------

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the container: asked first, killed after `grace` seconds."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        agent = ProcessId(handle.pid, handle.started)
        if self._host.process(agent.pid) == agent:
            await self._kill(handle, "TERM")
            if not await self._ends_within(agent, grace):
                await self._kill(handle, "KILL")
                await self._ends_within(agent, KILL_TIMEOUT)
        else:
            await self._kill(handle, "KILL")
        return await self.ended(handle)

    async def _ends_within(self, process: ProcessId, seconds: float) -> bool:
        """Return whether the process ends within this many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._host.exited(process)
        except TimeoutError:
            return False
        return True

    async def _kill(self, handle: Handle, name: str) -> None:
        """Send a signal to the container; a container that is gone is no error."""
        argv = [handle.address["engine"] or "docker", "kill", "--signal", name, handle.address["container"]]
        await engines.run_engine(self._host, argv, ok=_GONE_ERRORS)

    async def discard(self, handle: Handle) -> None:
        """Remove terminal and container; a container that the engine cannot remove now is found again by its labels."""
        await super().discard(handle)
        with contextlib.suppress(AoError):
            argv = [handle.address["engine"] or "docker", "rm", "--force", "--volumes", handle.address["container"]]
            await engines.run_engine(self._host, argv, ok=_GONE_ERRORS)
        for file in (_script_file(launch_from_handle(handle)), _rules_file(launch_from_handle(handle))):
            file.unlink(missing_ok=True)
        shutil.rmtree(Path(handle.address["socket"]).with_suffix(".net"), ignore_errors=True)

    async def orphaned_terminals(self, expected: Sequence[Handle]) -> list[Handle]:
        """Return the handles of launches with a holder that are not expected, and of containers without a holder."""
        leftover_handles = await super().orphaned_terminals(expected)
        names = {handle.address.get("container") for handle in (*expected, *leftover_handles)}
        with contextlib.suppress(AoError):
            engine = await self._engine("auto")
            for container, launch in (await self._labelled_launches(engine)).items():
                if self._name(launch) in names or launch_file(launch, "holder", ".json").exists():
                    continue
                address = {**launch, "holder": "0", "holderStarted": "", "memory": ""}
                address |= {"engine": engine.name, "container": container}
                number = int(launch["generation"])
                leftover_handles.append(
                    Handle(self.name, launch["session"], number, 0, "", self._host.boot_id(), address)
                )
        return leftover_handles

    async def _labelled_launches(self, engine: Engine) -> dict[str, dict[str, str]]:
        """Return the engine's containers of this home: the launch by container id."""
        list_command = [engine.name, "ps", "--all", "--quiet", "--filter", f"label={LABEL}.home={self._home_hash()}"]
        ids = (await engines.run_engine(self._host, list_command)).text.split()
        if not ids:
            return {}
        inspect_command = [engine.name, "container", "inspect", "--format", "{{.Id}} {{json .Config.Labels}}", *ids]
        launches = {}
        for line in (await self._host.run(inspect_command)).text.splitlines():
            container, _, text = line.partition(" ")
            labels = {name.removeprefix(f"{LABEL}."): value for name, value in json.loads(text).items()}
            with contextlib.suppress(KeyError, ValueError):
                private, log = Path(labels["private"]), Path(labels["log"])
                spec = LaunchSpec(labels["session"], int(labels["generation"]), (), Path("/"), {}, private, log)
                launches[container] = self._launch(spec)
        return launches


_FIXED_OPTIONS = (
    *("--init", "--pull", "never", "--log-driver", "none", "--pids-limit", str(MAX_PROCESSES)),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *(("--security-opt", "label=disable") if Path("/sys/fs/selinux/enforce").exists() else ()),
)


def _limit_options(container: Container) -> list[str]:
    """Return the options for CPU and memory limits."""
    options = ["--cpus", f"{container.cpus:g}"] if container.cpus else []
    if container.memory:
        options += ["--memory", str(container.memory), "--memory-swap", str(container.memory)]
    return options


def _mount_options(mounts: Sequence[Mount]) -> list[str]:
    """Return the mount options, outer paths first; of several mounts on one target the last one counts."""
    mount_by_target = {mount.target: mount for mount in mounts}
    ordered = sorted(mount_by_target.values(), key=lambda mount: len(mount.target.parts))
    return [part for mount in ordered for part in ("--mount", mount_option(mount))]


def _command(spec: LaunchSpec, container: Container) -> tuple[tuple[str, ...], dict[str, str], list[Mount]]:
    """Return the agent's command inside the container, its environment and the mounts that it needs.

    Agent Orchestrator's own programs run on the image's Python; any other is looked up there by its name.
    """
    env, program = launch_checks.environment(spec, TERM), spec.argv[0]
    if program == sys.executable:
        if spec.container is not None:
            env["PYTHONPATH"] = str(_PACKAGE.parent)
        return ("python3", *spec.argv[1:]), env, [Mount(_PACKAGE, _PACKAGE)]
    visible_folders = (spec.cwd, spec.private, *(mount.target for mount in container.mounts))
    is_hidden = Path(program).is_absolute() and not any(
        Path(program).is_relative_to(folder) for folder in visible_folders
    )
    return (Path(program).name if is_hidden else program, *spec.argv[1:]), env, []


def _make_mount_point(mount: Mount, private: Path) -> None:
    """Create a mount point in the private folder; otherwise the engine would create it as root."""
    if not mount.target.is_relative_to(private) or mount.target.exists():
        return
    if mount.source.is_dir():
        mount.target.mkdir(mode=0o700, parents=True)
    else:
        mount.target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mount.target.touch(mode=0o600)


def _is_mounted(path: Path, mounts: Sequence[Mount]) -> bool:
    """Return whether the path is below one of the mounts' targets."""
    return any(path.is_relative_to(mount.target) for mount in mounts)


def _container_folder(private: Path) -> Path:
    """Return the container's own part of the private folder; its home is in it."""
    return private / "container"


def _started_file(launch: Mapping[str, str]) -> Path:
    """Return the file that the script creates when it runs."""
    return _container_folder(Path(launch["private"])) / f"started.{launch['generation']}"


def _rules_file(launch: Mapping[str, str]) -> Path:
    """Return the file with the proxy's rules."""
    return launch_file(launch, "container", ".rules")


def _script_file(launch: Mapping[str, str]) -> Path:
    """Return the file with the container's script."""
    return launch_file(launch, "container", ".sh")


def _read_bytes(path: str) -> bytes:
    """Return the file's content, or b"" if it is gone."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - read for many processes
            return file.read()
    except OSError:
        return b""


def _pid_inside(pid: int) -> int:
    """Return a process's pid inside its container; 0 if it is gone."""
    for line in read_text(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0


def _to_exit(code: int, out_of_memory: bool, handle: Handle) -> Exit:
    """Return the exit for a container's exit code, which has a signal added to 128 as in a shell."""
    limit = handle.address.get("memory")
    reason = f"it ran out of memory{f' (limit {limit})' if limit else ''}" if out_of_memory else ""
    if 128 < code <= 128 + max(signal.Signals):
        return Exit(signal=code - 128, reason=reason)
    return Exit(code, reason=reason)


def _format_size(count: int) -> str:
    """Return a number of bytes as text."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
