"""The image of a container: the one that is named, or one built once from a Dockerfile; and what it has."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.errors import Missing, Temporary
from agent_orchestrator.plugins.runtimes.docker.engine import Engine
from agent_orchestrator.plugins.runtimes.docker.network import RELAYS
from agent_orchestrator.protocols import Container, Report
from agent_orchestrator.protocols.host import Host

SHIPPED = Path(__file__).with_name("Dockerfile")
NAME = "agent-orchestrator"
BUILT_WITHIN = 3600.0
STAYS = 60.0
"""Seconds that an image which was there is taken to be there still."""

INSTALL: Mapping[str, str] = {
    "aider": "python3 -m pip install --no-cache-dir aider-chat",
    "amp": "npm install -g @sourcegraph/amp",
    "auggie": "npm install -g @augmentcode/auggie",
    "claude-code": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "copilot": "npm install -g @github/copilot",
    "crush": "npm install -g @charmland/crush",
    "droid": "npm install -g droid",
    "gemini": "npm install -g @google/gemini-cli",
    "kimicode": "npm install -g @moonshot-ai/kimi-code",
    "opencode": "npm install -g opencode-ai",
    "qwen": "npm install -g @qwen-code/qwen-code",
}
"""How the shipped image gets an agent's program; any other agent needs an image of the project's own."""
NEEDS_NOTHING = ("demo", "command")

_PROBE = (
    "for program in {relays}; do if command -v $program >/dev/null 2>&1; then echo $program; break; fi; done; "
    "echo --; cat /etc/passwd 2>/dev/null"
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is here."""

    name: str
    id: str
    relay: str
    """What leads its loopback's ports to sockets; nothing: it has no such program."""
    passwd: str


@dataclass(slots=True)
class Images:
    """The images of one engine."""

    host: Host
    _known: dict[str, Image] = field(default_factory=dict)
    """By id."""
    _seen: dict[str, tuple[float, Image]] = field(default_factory=dict)
    """By name, and when it was there."""
    _building: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def get(self, engine: Engine, container: Container, report: Report) -> Image:
        """The image, pulled or built if it is not here yet."""
        name = container.image or _tag(container)
        at, known = self._seen.get(name, (0.0, None))
        if known and time.monotonic() - at < STAYS:
            return known
        async with self._building.setdefault(name, asyncio.Lock()):
            found = await self._id(engine, name)
            if found is None:
                if container.image:
                    await self._pull(engine, name, report)
                else:
                    await self._build(engine, name, container, report)
                found = await self._id(engine, name)
            if found is None:
                raise Temporary(f"the image {name} is not there after all", "try again")
            if found not in self._known:
                self._known[found] = await self._probe(engine, name, found)
            self._seen[name] = time.monotonic(), self._known[found]
            return self._known[found]

    def forget(self) -> None:
        """Look again whether they are there."""
        self._seen.clear()

    async def _id(self, engine: Engine, name: str) -> str | None:
        done = await self.host.run([engine.name, "image", "inspect", "--format", "{{.Id}}", name])
        return done.text.strip() or None if done.code == 0 else None

    async def _pull(self, engine: Engine, name: str, report: Report) -> None:
        report(f"{engine.name} pull {name}")
        last = [""]
        code = await self.host.stream([engine.name, "pull", name], _keeping(report, last), timeout=BUILT_WITHIN)
        if code:
            raise Missing(f"the image {name} could not be had: {last[0]}", "correct docker.image, or pull it yourself")

    async def _build(self, engine: Engine, name: str, container: Container, report: Report) -> None:
        file = container.dockerfile
        report(f"building the image {name} from {file or 'the shipped Dockerfile'}; this is done once")
        last = [""]
        argv = [engine.name, "build", "--tag", name]
        if file is None:
            argv += ["--build-arg", f"INSTALL={INSTALL.get(container.agent, 'true')}", "-"]
            given = SHIPPED.read_bytes()
        else:
            argv += ["-"]
            given = read_plain(file.resolve())
        code = await self.host.stream(argv, _keeping(report, last), input=given, timeout=BUILT_WITHIN)
        if code:
            what = "docker.dockerfile" if file else "the network, or name an image: docker.image"
            raise Missing(f"the image {name} could not be built: {last[0]}", f"correct {what}")

    async def _probe(self, engine: Engine, name: str, found: str) -> Image:
        """What it has, by its own shell."""
        look = _PROBE.format(relays=" ".join(RELAYS))
        argv = [engine.name, "run", "--rm", "--network", "none", "--log-driver", "none", "--entrypoint", "/bin/sh"]
        done = await self.host.run([*argv, found, "-c", look], timeout=120.0)
        if done.code:
            raise Missing(
                f"the image {name} cannot run /bin/sh: {(done.error.strip().splitlines() or [''])[-1]}",
                "use an image with a shell and Git: docker.image",
            )
        relay, _, passwd = done.text.partition("--\n")
        return Image(name, found, relay.strip(), passwd)


def _tag(container: Container) -> str:
    """A name that changes with what the image is made of."""
    if container.dockerfile is not None:
        try:
            content = read_plain(container.dockerfile.resolve())
        except OSError as error:
            raise Missing(
                f"the Dockerfile {container.dockerfile} cannot be read: {error.strerror or error}",
                "correct docker.dockerfile",
            ) from None
        return f"{NAME}/project:{hashlib.sha256(content).hexdigest()[:12]}"
    agent = container.agent
    if agent not in INSTALL and agent not in NEEDS_NOTHING:
        raise Missing(
            f"the shipped image cannot get the program of agent {agent}", "name an image that has it: docker.image"
        )
    made_of = json.dumps([SHIPPED.read_text(), INSTALL.get(agent, "")])
    return f"{NAME}/{agent}:{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def _keeping(report: Report, last: list[str]) -> Report:
    def line(text: str) -> None:
        if text.strip():
            last[0] = text.strip()
            report(text)

    return line
