"""Secrets in the system's keyring: `${keyring:NAME}` in the configuration, and the tokens of forges.

Needs the package `keyring` (`pip install 'agent-orchestrator[keyring]'`), which is imported only when a secret is
used.
"""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType
from typing import cast

from agent_orchestrator.errors import AoError, Missing, UsageError

SERVICE = "agent-orchestrator"
"""The name of the service under which our secrets are stored."""
_INDEX_ENTRY = "names of the secrets"
"""Name of the entry that lists the others: a keyring cannot list its entries."""
_MAX_NAME_LENGTH = 100


def is_installed() -> bool:
    """Return whether the keyring package is installed."""
    return importlib.util.find_spec("keyring") is not None


def read(name: str) -> str | None:
    """Return a secret, or None if there is none by that name, or the keyring does not answer."""
    if not is_installed():
        return None
    try:
        return cast("str | None", _import_keyring().get_password(SERVICE, name)) or None
    except Exception:
        return None


def write(name: str, value: str) -> None:
    """Store a secret. Raises `UsageError` if the name or value is invalid."""
    if not (name.isidentifier() and name.isascii() and len(name) <= _MAX_NAME_LENGTH):
        raise UsageError(f"{name!r} is no name for a secret", "letters, digits and _, as in GITHUB_TOKEN")
    if not value:
        raise UsageError("the secret is empty", "type it, or pipe it in")
    _call("set_password", name, value)
    _call("set_password", _INDEX_ENTRY, json.dumps(sorted({*names(), name})))


def remove(name: str) -> bool:
    """Delete a secret; return whether there was one."""
    existing = names()
    if name not in existing:
        return False
    _call("delete_password", name)
    _call("set_password", _INDEX_ENTRY, json.dumps([other for other in existing if other != name]))
    return True


def names() -> list[str]:
    """Return the names of all secrets."""
    try:
        return [str(name) for name in json.loads(str(_call("get_password", _INDEX_ENTRY) or "[]"))]
    except ValueError:
        return []


def _import_keyring() -> ModuleType:
    """Return the package `keyring`. Raises `Missing` if it is not installed."""
    try:
        return importlib.import_module("keyring")
    except ImportError:
        raise Missing("the package keyring is not installed", "pip install 'agent-orchestrator[keyring]'") from None


def _call(function: str, *arguments: str) -> object:
    """Call a function of the keyring for our service. Raises `AoError` if it fails."""
    keyring = _import_keyring()
    try:
        return getattr(keyring, function)(SERVICE, *arguments)
    except Exception as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise AoError(f"the keyring does not answer: {message[:200]}", "unlock it, or see: keyring diagnose") from None
