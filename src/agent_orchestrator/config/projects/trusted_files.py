"""`TrustedFiles`: which configuration files may use their powers (run commands, open something), by what the user has trusted.

What a file could do is computed in `config/trust/`; what the user trusted is in the facts. Look here when a part of a configuration
is or is not in force although the file was not changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.config import trust
from agent_orchestrator.config.detection.proposal import proposal_digest
from agent_orchestrator.config.load import LoadedConfig, load_file
from agent_orchestrator.config.model import Config
from agent_orchestrator.config.projects.plugin_registry import declared_permissions
from agent_orchestrator.config.projects.tracked_files import is_tracked
from agent_orchestrator.config.trust import TrustContext
from agent_orchestrator.core.facts import Facts
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import make_visible


@dataclass(frozen=True, slots=True)
class FilePowers:
    """What a file would run or open, together with the contents of it and of the user's own file from which that was computed."""

    loaded: LoadedConfig
    own: Config
    powers: dict[str, Any]
    digests: tuple[str, str]
    """The digest as earlier versions recorded it (without the file's path), and as it is recorded now."""
    missing_walls: Mapping[tuple[str, str], str]
    """The walls (container, permissions, sandbox) that the file does not put around agents, by their digests (`wall_digests`)."""


class TrustedFiles:
    """Compares files with what the user trusted. `around` is what a file's powers are compared with (`ConfigSet.trust_context`)."""

    def __init__(self, facts: Facts, home: Home, *, foreign: bool = False) -> None:
        """`foreign`: the configuration file that the daemon was started with came with a repository."""
        self._facts = facts
        self._home = home
        self._is_foreign = foreign
        self._uses_facts = False
        self._powers: dict[Path, FilePowers] = {}

    def start_using_facts(self) -> None:
        """From now on decide by the facts; before, only the daemon's own settings are trusted, and only from the user's own files."""
        self._uses_facts = True

    def trusts(self, loaded: LoadedConfig, around: TrustContext) -> bool:
        """Return whether all powers of a file, and the current content of the code files that it names, are trusted."""
        if not self._uses_facts:
            return not self._is_foreign and bool(trust.daemon_settings(loaded))
        return not self.untrusted(loaded, around)

    def untrusted(self, loaded: LoadedConfig, around: TrustContext) -> list[str]:
        """Return the digests that are not trusted yet."""
        trusted = self._facts.home.trusted_commands
        is_home_file = loaded.path == self._home.config
        old_digest, new_digest = ("", "") if is_home_file else self.powers_of(loaded, around).digests
        is_trusted = trusted.get(old_digest) == str(loaded.path)  # as earlier versions recorded it
        digests = [] if is_trusted else [new_digest]
        digests += [trust.code_digest(path) for path in trust.code_files(loaded, around)]
        digests += [] if is_home_file else self.removed_walls(loaded, around)
        return [digest for digest in digests if digest and digest not in trusted]

    def untrusted_powers(
        self, loaded: LoadedConfig, around: TrustContext, project: str, used: Mapping[str, bool], profile: str | None
    ) -> str:
        """Return the untrusted powers that a session of a project would use, as text, or "" if there are none.

        `used` says for `ci`, `reactions` and `coordinator` whether the session uses them.
        """
        digests = self.untrusted(loaded, around)
        if not digests:
            return ""
        waiting = trust.powers(loaded, around, waits=True)
        own_powers = {
            **waiting.get("projects", {}).get(project, {}),
            **waiting.get("project", {}),
            **waiting.get("defaults", {}),
        }
        names = {key for key in own_powers if used["ci"] or key not in ("ci", "fix")}
        names |= {key for key in ("plugins", "variables") if key in waiting}
        names |= {f"agents.{profile}"} if profile in waiting.get("agents", {}) else set()
        names |= {"reactions"} if used["reactions"] and "reactions" in waiting else set()
        names |= {"coordinator"} if used["coordinator"] and "coordinator" in waiting.get("orchestrator", {}) else set()
        names |= {path.name for path in trust.code_files(loaded, around) if trust.code_digest(path) in digests}
        names |= {f"no longer {wall}" for wall in self.removed_walls(loaded, around).values()}
        return ", ".join(sorted(names))

    def removed_walls(self, loaded: LoadedConfig, around: TrustContext) -> dict[str, str]:
        """Return the walls that a file put around agents when a person trusted it, and no longer does.

        The keys are the digests of trust in the file without that wall.
        """
        trusted = self._facts.home.trusted_commands
        if str(loaded.path.parent) not in map(os.path.dirname, trusted.values()):
            return {}
        return {
            without_wall: wall
            for (with_wall, without_wall), wall in self.powers_of(loaded, around).missing_walls.items()
            if with_wall in trusted and without_wall not in trusted
        }

    def powers_of(self, loaded: LoadedConfig, around: TrustContext) -> FilePowers:
        """Return what a file would run or open; computed again only if the file or the user's own file changed."""
        cached = self._powers.get(loaded.path)
        if cached is None or cached.loaded is not loaded or cached.own is not around.own:
            powers = trust.powers(loaded, around)
            digests = (trust.digest(powers), trust.digest(powers, loaded.path))
            missing = [wall for wall, is_kept in trust.walls(loaded, around.own).items() if not is_kept]
            unwalled = {trust.wall_digests(wall, loaded.path): wall for wall in missing}
            cached = self._powers[loaded.path] = FilePowers(loaded, around.own, powers, digests, unwalled)
        return cached

    def is_proposal(self, loaded: LoadedConfig, around: TrustContext) -> bool:
        """Return whether a file's commands are exactly the detected ones. A file whose commands a person edited is no proposal."""
        digest = proposal_digest(self.powers_of(loaded, around).powers, loaded.path)
        return bool(digest) and digest in self._facts.home.proposed_commands

    def admits(self, path: Path, data: bytes) -> bool:
        """Return whether this file of code is trusted with exactly this content."""
        return trust.file_digest(path, data) in self._facts.home.trusted_commands

    def store_daemon_trust(self, loaded: LoadedConfig) -> None:
        """Store the digest of a file's daemon-wide settings in `home.trusted`: it is needed before the event log can be read."""
        digest = trust.digest(trust.daemon_settings(loaded))
        if digest and digest not in trusted_for_daemon(self._home):
            with self._home.trusted_settings.open("a", encoding="utf-8") as file:
                file.write(f"{digest}\n")


def trusted_for_daemon(home: Home) -> frozenset[str]:
    """Return the digests of the trusted daemon-wide settings."""
    try:
        return frozenset(home.trusted_settings.read_text(encoding="utf-8").split())
    except OSError:
        return frozenset()


async def is_untrusted_foreign_file(host: Host, home: Home, file: Path) -> bool:
    """Return whether a file came with a repository and its daemon-wide settings are not trusted."""
    try:
        digest = trust.digest(trust.daemon_settings(load_file(file, os.environ)))
    except Exception:
        return True  # loading the file reports the error
    return bool(digest) and digest not in trusted_for_daemon(home) and await is_tracked(host, file)


def describe_powers(powers: Mapping[str, Any], code: Iterable[Path]) -> list[str]:
    """Return powers and files of code as lines for a person, with control characters made visible."""
    lines = [*_command_lines(powers), *(f"{path}: {_describe_code(path)}" for path in code)]
    return [make_visible(line).replace("\n", " ⏎ ") for line in lines]


def _describe_code(path: Path) -> str:
    """Return the label of a code file: the permissions that it declares, if any."""
    return (
        f"code; it declares {', '.join(permissions)}"
        if (permissions := declared_permissions(path)) is not None
        else "code"
    )


def _command_lines(commands: Any, where: str = "") -> list[str]:
    """Return nested commands as lines "key.subkey: command"."""
    if isinstance(commands, Mapping):
        return [
            line
            for key, value in commands.items()
            for line in _command_lines(value, f"{where}.{key}" if where else str(key))
        ]
    if isinstance(commands, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in commands):
        return [line for item in commands for line in _command_lines(item, where)]
    return [f"{where}: {' · '.join(map(str, commands)) if isinstance(commands, list | tuple) else commands}"]
