"""Values that need trust: forges, trackers and repositories that get or use the user's tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.config import model as m
from agent_orchestrator.config.detection.repository import parse_remote, remote
from agent_orchestrator.config.trust.power import SelectUntrusted, TrustContext, drop_empty, first_set, resolve_path
from agent_orchestrator.config.trust.values import third_party_plugin

_GITHUB_ADDRESS = re.compile(r"(https://|git@|ssh://git@)github\.com[/:][\w./~-]*", re.IGNORECASE)

_ISSUE_SCOPES = ("project", "projectKey", "team", "teamId")
"""Options that select which issues a token opens in Jira or Linear. A checkout cannot show that these belong to it."""


def forge_powers(slot: str) -> SelectUntrusted:
    """Return a power for what sends a token of the user's to a host of the file's choice, what the token opens there, and the secret of
    a webhook.
    """

    def find_power(value: Any, section: Any, around: TrustContext) -> Any:
        options, own = value.options, getattr(around.own.defaults, slot)
        hosts = [host for host in _hosts_of(value) if _hosts_of(own) or not _GITHUB_ADDRESS.fullmatch(host)]
        secrets = {key: options[key] for key in ("token", "email", "fork", "webhook") if options.get(key)}
        secrets |= {
            key: options[key] for key in _ISSUE_SCOPES if options.get(key) and options[key] != own.options.get(key)
        }
        repo = _value_if_foreign(str(options["repo"]), section, around, value) if options.get("repo") else None
        return drop_empty(
            {"plugin": third_party_plugin(slot)(value, section, around), "hosts": hosts, "repo": repo, **secrets}
        )

    return find_power


def foreign_repository(value: Any, section: Any, around: TrustContext) -> Any:
    """Return a repository that the checkout did not come from, or one at a host that the user's tokens are not for."""
    sections = (section, around.defaults, around.own.defaults)
    forge, tracker = first_set("scm", *sections) or m.PluginSection(), first_set("tracker", *sections)
    forges = (forge, tracker) if tracker and tracker.plugin != "auto" else (forge,)
    return None if value is None else _value_if_foreign(value, section, around, *forges)


def _value_if_foreign(value: str, section: Any, around: TrustContext, *forges: m.PluginSection) -> str | None:
    """Return the value if it names another repository than the checkout's origin, or a host that tokens are not for."""
    root = resolve_path(around.folder, getattr(section, "path", None) or ".", around)
    origin, host = remote(root) if root.is_dir() else (None, None)
    given_name = parse_remote(value)[0] if "://" in value or "@" in value else value
    if origin and given_name and given_name.casefold() != origin.casefold():
        return value
    return value if _names_other_host(value) or (host and _has_unknown_host(host, forges, around)) else None


def _has_unknown_host(host: str, forges: Sequence[m.PluginSection], around: TrustContext) -> bool:
    """Return whether the checkout came from a host other than the ones at which its name is looked up.

    A host without a dot is an alias in the user's SSH configuration and is accepted.
    """
    own = (around.own.defaults.scm, around.own.defaults.tracker)
    for forge in forges:
        default_host = "gitlab.com" if forge.plugin == "gitlab" else "github.com"
        host_names = [
            urlsplit(address if "://" in address else f"//{address}").hostname or ""
            for plugin in (forge, *own)
            for address in _hosts_of(plugin)
        ]
        known_hosts = {name.removeprefix("api.") for name in (default_host, *host_names)}
        if "." in host and not {host, host.removeprefix("ssh."), host.removeprefix("altssh.")} & known_hosts:
            return forge.plugin in ("auto", "github", "gitlab")
    return False


def _hosts_of(forge: m.PluginSection) -> list[str]:
    """Return the hosts that a forge or tracker plugin's options name."""
    addresses = [str(forge.options[key]) for key in ("apiUrl", "url", "host") if forge.options.get(key)]
    return list(dict.fromkeys(addresses))


def _names_other_host(repo: str) -> bool:
    """Return whether a repository's name includes a host, and that host is not GitHub."""
    owner, _, rest = repo.partition("/")
    has_host = ":" in repo or "@" in repo or ("." in owner and ("/" in rest or not rest))
    return has_host and not _GITHUB_ADDRESS.fullmatch(repo)
