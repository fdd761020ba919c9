"""Gets the image of a container: a configured one, or one that is built once from a Dockerfile; and probes what it contains."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.errors import Missing, Temporary
from agent_orchestrator.plugins.runtimes.docker.engine import Engine
from agent_orchestrator.plugins.runtimes.docker.network import RELAYS
from agent_orchestrator.protocols import Container, LineCallback
from agent_orchestrator.protocols.host import Host

DEFAULT_DOCKERFILE = Path(__file__).with_name("Dockerfile")
IMAGE_NAME_PREFIX = "agent-orchestrator"
BUILD_TIMEOUT = 3600.0
PRESENCE_CACHE_SECONDS = 60.0
"""Seconds for which an image that was present is not checked again."""

INSTALL_COMMANDS: Mapping[str, str] = {
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
"""The command that installs an agent's program in the default image; any other agent needs an image of the project's own."""
AGENTS_WITHOUT_INSTALL = ("demo", "command")

_PROBE = (
    "for program in {relays}; do if command -v $program >/dev/null 2>&1; then echo $program; break; fi; done; "
    "echo --; cat /etc/passwd 2>/dev/null"
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has."""

    name: str
    id: str
    relay: str
    """The program that forwards loopback ports to sockets; "" if the image has none."""
    passwd: str


@dataclass(slots=True)
class Images:
    """The images of one engine."""

    host: Host
    _probed: dict[str, Image] = field(default_factory=dict)
    """Probed images by id."""
    _present: dict[str, tuple[float, Image]] = field(default_factory=dict)
    """By name: when the image was last present, and the image."""
    _building: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def get(self, engine: Engine, container: Container, report: LineCallback) -> Image:
        """Return the image, pulling or building it if it is not present. Raises `Missing` if that fails."""
        name = container.image or _tag(container)
        checked_at, image = self._present.get(name, (0.0, None))
        if image and time.monotonic() - checked_at < PRESENCE_CACHE_SECONDS:
            return image
        async with self._building.setdefault(name, asyncio.Lock()):
            image_id = await self._id(engine, name)
            if image_id is None:
                if container.image:
                    await self._pull(engine, name, report)
                else:
                    await self._build(engine, name, container, report)
                image_id = await self._id(engine, name)
            if image_id is None:
                raise Temporary(f"the image {name} is not there after all", "try again")
            if image_id not in self._probed:
                self._probed[image_id] = await self._probe(engine, name, image_id)
            self._present[name] = time.monotonic(), self._probed[image_id]
            return self._probed[image_id]

    def recheck(self) -> None:
        """Make the next `get` check again that the images are present."""
        self._present.clear()

    async def _id(self, engine: Engine, name: str) -> str | None:
        """Return the image's id, or None if it is not present."""
        result = await self.host.run([engine.name, "image", "inspect", "--format", "{{.Id}}", name])
        return result.text.strip() or None if result.code == 0 else None

    async def _pull(self, engine: Engine, name: str, report: LineCallback) -> None:
        """Pull the image. Raises `Missing` if that fails."""
        report(f"{engine.name} pull {name}")
        last_line = [""]
        code = await self.host.stream(
            [engine.name, "pull", name], _keeping_last_line(report, last_line), timeout=BUILD_TIMEOUT
        )
        if code:
            raise Missing(
                f"the image {name} could not be had: {last_line[0]}", "correct docker.image, or pull it yourself"
            )

    async def _build(self, engine: Engine, name: str, container: Container, report: LineCallback) -> None:
        """Build the image from the project's Dockerfile or the default one. Raises `Missing` if that fails."""
        file = container.dockerfile
        report(f"building the image {name} from {file or 'the shipped Dockerfile'}; this is done once")
        last_line = [""]
        argv = [engine.name, "build", "--tag", name]
        if file is None:
            argv += ["--build-arg", f"INSTALL={INSTALL_COMMANDS.get(container.agent, 'true')}", "-"]
            dockerfile = DEFAULT_DOCKERFILE.read_bytes()
        else:
            argv += ["-"]
            dockerfile = read_regular_file(file.resolve())
        code = await self.host.stream(
            argv, _keeping_last_line(report, last_line), input=dockerfile, timeout=BUILD_TIMEOUT
        )
        if code:
            subject = "docker.dockerfile" if file else "the network, or name an image: docker.image"
            raise Missing(f"the image {name} could not be built: {last_line[0]}", f"correct {subject}")

    async def _probe(self, engine: Engine, name: str, image_id: str) -> Image:
        """Return what the image contains, as its own shell reports it. Raises `Missing` if it has no shell."""
        probe_script = _PROBE.format(relays=" ".join(RELAYS))
        argv = [engine.name, "run", "--rm", "--network", "none", "--log-driver", "none", "--entrypoint", "/bin/sh"]
        result = await self.host.run([*argv, image_id, "-c", probe_script], timeout=120.0)
        if result.code:
            raise Missing(
                f"the image {name} cannot run /bin/sh: {(result.error.strip().splitlines() or [''])[-1]}",
                "use an image with a shell and Git: docker.image",
            )
        relay, _, passwd = result.text.partition("--\n")
        return Image(name, image_id, relay.strip(), passwd)


def _tag(container: Container) -> str:
    """Return a name that changes with the content the image is built from. Raises `Missing` if it cannot be built."""
    if container.dockerfile is not None:
        try:
            content = read_regular_file(container.dockerfile.resolve())
        except OSError as error:
            raise Missing(
                f"the Dockerfile {container.dockerfile} cannot be read: {error.strerror or error}",
                "correct docker.dockerfile",
            ) from None
        return f"{IMAGE_NAME_PREFIX}/project:{hashlib.sha256(content).hexdigest()[:12]}"
    agent = container.agent
    if agent not in INSTALL_COMMANDS and agent not in AGENTS_WITHOUT_INSTALL:
        raise Missing(
            f"the shipped image cannot get the program of agent {agent}", "name an image that has it: docker.image"
        )
    ingredients = json.dumps([DEFAULT_DOCKERFILE.read_text(), INSTALL_COMMANDS.get(agent, "")])
    return f"{IMAGE_NAME_PREFIX}/{agent}:{hashlib.sha256(ingredients.encode()).hexdigest()[:12]}"


def _keeping_last_line(report: LineCallback, last_line: list[str]) -> LineCallback:
    """Return a report function that also stores the last line in `last`."""

    def handle_line(text: str) -> None:
        if text.strip():
            last_line[0] = text.strip()
            report(text)

    return handle_line
