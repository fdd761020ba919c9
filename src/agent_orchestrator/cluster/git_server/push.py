"""Pushes: the objects are checked in quarantine, and the refs move, all or none, only if the session may still write them.

Git's own receiver is not used: what it allows, runs and checks depends on the repository's configuration, which agents may write.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.cluster.git_server import pktline
from agent_orchestrator.cluster.git_server.access import READABLE_BY_ALL, Rights
from agent_orchestrator.cluster.git_server.pktline import RequestStream
from agent_orchestrator.errors import AoError, Denied, Temporary, UsageError

MAX_PACK_BYTES = 8 << 30
"""Bytes of a pack, at most."""
_CAPABILITIES = "report-status side-band-64k quiet atomic ofs-delta agent=agent-orchestrator"
"""The protocol features that a client may use."""
_MAX_REF_UPDATES, _MAX_SHALLOW_COMMITS = 64, 100_000
"""The most refs, and the most commits of cut-off history, in one push."""
_MIN_PACKED_OBJECTS = 100
"""Packs with fewer objects are unpacked into single objects, as Git does; larger ones are stored as they came."""
_MAX_DISCARDED_BYTES = 32 << 20
"""Bytes of a refused push that are read and discarded, so that the sender gets to read the reason."""
_COMMAND = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) ([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\x00-\x20\x7f]+)\n?")
_SHALLOW = re.compile(rb"shallow ([0-9a-f]{40}|[0-9a-f]{64})\n?")
_MOVED_AFTER_PACK = (".idx", ".rev", ".bitmap", ".mtimes")
"""Files of a pack that are moved after the pack itself."""


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """One ref to move; `old` of zeros creates it, `new` of zeros removes it."""

    old: str
    new: str
    ref: str


@dataclass(slots=True)
class Push:
    """The commands of a push, read before its objects."""

    commands: list[RefUpdate]
    shallow: set[str]
    capabilities: frozenset[str] = frozenset()


class PushRefused(AoError):
    """The push is refused for this reason; `ref` names the ref that is to blame, if there is one."""

    def __init__(self, reason: str, ref: str = "") -> None:
        super().__init__(reason)
        self.ref = ref


async def advertise_push(git: Git, rights: Rights) -> AsyncGenerator[bytes, None]:
    """Yield the refs that are here, so that their objects are not sent, and the supported capabilities."""
    refs = await git.refs(*READABLE_BY_ALL, *rights.visible)
    first = next(iter(refs.values()), "0" * 40)
    capabilities = f"{_CAPABILITIES} object-format={'sha256' if len(first) == 64 else 'sha1'}".encode()
    lines = [f"{sha} {name}".encode(errors="surrogateescape") for name, sha in refs.items()]
    lines = lines or [f"{first} capabilities^{{}}".encode()]
    yield pktline.encode_line(b"# service=git-receive-pack\n") + pktline.FLUSH
    yield pktline.encode_line(lines[0] + b"\0" + capabilities + b"\n")
    for line in lines[1:]:
        yield pktline.encode_line(line + b"\n")
    yield pktline.FLUSH


async def receive_push(git: Git, rights: Rights, sent: RequestStream) -> AsyncGenerator[bytes, None]:
    """Receive a push; yield the answer, which says for each ref whether it was moved, or why not."""
    push = await _read_commands(sent)
    if push is None:
        return  # the client only probed the connection
    unpacked, reason, refused_ref = "ok", "", ""
    try:
        _check_commands(push, rights)
        await _receive_objects(git, rights, push, sent)
    except (PushRefused, Denied) as error:
        reason, refused_ref = error.text, error.ref if isinstance(error, PushRefused) else ""
    except GitFailed as error:
        unpacked = reason = _first_line(error.stderr)
    if reason:
        await sent.discard(_MAX_DISCARDED_BYTES)
    answer = pktline.encode_line(f"unpack {unpacked}\n".encode())
    for command in push.commands:
        command_reason = reason if refused_ref in ("", command.ref) else f"{refused_ref} was refused"
        status = f"ng {command.ref} {command_reason}\n" if reason else f"ok {command.ref}\n"
        answer += pktline.encode_line(status.encode(errors="surrogateescape"))
    answer += pktline.FLUSH
    if "side-band-64k" in push.capabilities:
        for piece in pktline.encode_band(1, answer):
            yield piece
        yield pktline.FLUSH
    else:
        yield answer


async def _read_commands(sent: RequestStream) -> Push | None:
    """Return the commands of a push, or None if there are none."""
    push = Push([], set())
    while (line := await sent.read_line()) is not None:
        content, _, capabilities = line.partition(b"\0")
        if capabilities:
            push.capabilities = frozenset(capabilities.decode(errors="replace").split())
        if (shallow_match := _SHALLOW.fullmatch(content)) and len(push.shallow) < _MAX_SHALLOW_COMMITS:
            push.shallow.add(shallow_match[1].decode())
            continue
        match = _COMMAND.fullmatch(content)
        if match is None or len(push.commands) == _MAX_REF_UPDATES:
            raise UsageError("this is not a push that can be taken", "push refs one by one, without a signature")
        old, new, ref = (part.decode(errors="surrogateescape") for part in match.groups())
        push.commands.append(RefUpdate(old, new, ref))
    return push if push.commands else None


def _check_commands(push: Push, rights: Rights) -> None:
    """Raise `PushRefused` if a command may not be carried out."""
    for command in push.commands:
        if reason := rights.refusal_reason(command.ref):
            raise PushRefused(reason, command.ref)
        if not command.new.strip("0"):
            raise PushRefused("nothing is removed by a push", command.ref)
    if len({command.ref for command in push.commands}) < len(push.commands):
        raise PushRefused("one ref is named twice")


async def _receive_objects(git: Git, rights: Rights, push: Push, sent: RequestStream) -> None:
    """Receive the objects in quarantine, check that they are complete, and move them and the refs in."""
    layout = await git.layout()
    if layout is None:
        raise PushRefused("the repository is not there any more")
    if push.shallow:
        shallow_file = layout.common / "shallow"
        known_shallow = set(shallow_file.read_text().split()) if shallow_file.is_file() else set[str]()
        if not push.shallow <= known_shallow:
            raise PushRefused("history that is cut off cannot be taken: git fetch --unshallow")
    objects = layout.common / "objects"
    # Named as Git names its own, so that Git's cleanup removes what a crash leaves.
    with tempfile.TemporaryDirectory(prefix="tmp_objdir-incoming-", dir=objects) as folder:
        quarantine = Path(folder, "objects")
        quarantine.mkdir()
        quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
        env = {
            "GIT_OBJECT_DIRECTORY": str(quarantine),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"',
            "GIT_QUARANTINE_PATH": str(quarantine),
            "GIT_NO_REPLACE_OBJECTS": "1",
        }
        await _unpack(git, env, sent, Path(folder, "err"))
        new_commits = "".join(f"{command.new}\n" for command in push.commands).encode()
        connectivity_check = ("rev-list", "--objects", "--stdin", "--not", "--all", "--quiet", "--alternate-refs")
        await git.run(*connectivity_check, env=env, input=new_commits, timeout=None)
        rights.check_still_valid()
        await asyncio.to_thread(_move_in, quarantine, objects)
        await _move_refs(git, rights, push, Path(folder, "err"))


async def _unpack(git: Git, env: Mapping[str, str], sent: RequestStream, log: Path) -> None:
    """Store the objects, checking each; one bad object fails all."""
    head = await sent.read_exactly(12)
    if head[:4] != b"PACK":
        raise PushRefused("what was sent is no pack")
    is_small = int.from_bytes(head[8:12], "big") < _MIN_PACKED_OBJECTS
    argv = ("unpack-objects", "-q") if is_small else ("index-pack", "--stdin", "--fix-thin")
    async with git.pipe(*argv, "--strict", f"--max-input-size={MAX_PACK_BYTES}", log=log, env=env) as process:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(ConnectionError):
            piece = head
            while piece:
                process.stdin.write(piece)
                await process.stdin.drain()
                piece = await sent.read()
        process.stdin.close()
        await process.stdout.read()
        if await process.wait():
            raise PushRefused(_first_line(log.read_text(errors="replace")))


def _move_in(quarantine: Path, objects: Path) -> None:
    """Move the objects into the repository; a pack before its index, because Git finds it by the index."""
    files = [path for path in quarantine.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path.suffix in _MOVED_AFTER_PACK, path.suffix == ".idx")):
        target = objects / path.relative_to(quarantine)
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            path.replace(target)


async def _move_refs(git: Git, rights: Rights, push: Push, log: Path) -> None:
    """Move all refs or none; check the rights again once the refs are locked and only the commit is left."""
    steps = ["start", *(f"update {command.ref} {command.new} {command.old}" for command in push.commands), "prepare"]
    async with git.pipe("update-ref", "-m", "ao: push", "--no-deref", "--stdin", log=log) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("".join(f"{step}\n" for step in steps).encode(errors="surrogateescape"))
        output = b""
        while b"prepare: ok" not in output:
            piece = await process.stdout.read(1000)
            if not piece:
                raise PushRefused(_first_line(log.read_text(errors="replace")))
            output += piece
        rights.check_still_valid()
        process.stdin.write(b"commit\n")
        process.stdin.close()
        await process.stdout.read()
        if await process.wait():
            raise Temporary("the refs could not be moved", "try again")


def _first_line(output: str) -> str:
    """Return the first error of Git's output, or its first line."""
    lines = output.strip().splitlines() or ["Git does not say why"]
    message = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[0])
    return message.removeprefix("fatal: ").removeprefix("error: ")[:300]
