"""Secrets in the system's keyring: `${keyring:NAME}` in the configuration, and the tokens of forges.

Needs the package `keyring` (`pip install 'agent-orchestrator[keyring]'`), which is imported when a secret is asked for and not before.
"""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType
from typing import cast

from agent_orchestrator.errors import AoError, Missing, UsageError

SERVICE = "agent-orchestrator"
"""What our secrets are kept under."""
_NAMES = "names of the secrets"
"""The entry that lists the others: a keyring cannot be asked what it has."""
_LONGEST = 100


def installed() -> bool:
    """Can there be a keyring at all?"""
    return importlib.util.find_spec("keyring") is not None


def read(name: str) -> str | None:
    """A secret; none where there is none by that name, or no keyring that answers."""
    if not installed():
        return None
    try:
        return cast("str | None", _keyring().get_password(SERVICE, name)) or None
    except Exception:
        return None


def write(name: str, value: str) -> None:
    """Keep a secret."""
    if not (name.isidentifier() and name.isascii() and len(name) <= _LONGEST):
        raise UsageError(f"{name!r} is no name for a secret", "letters, digits and _, as in GITHUB_TOKEN")
    if not value:
        raise UsageError("the secret is empty", "type it, or pipe it in")
    _do("set_password", name, value)
    _do("set_password", _NAMES, json.dumps(sorted({*names(), name})))


def remove(name: str) -> bool:
    """Forget a secret; false: there was none."""
    known = names()
    if name not in known:
        return False
    _do("delete_password", name)
    _do("set_password", _NAMES, json.dumps([other for other in known if other != name]))
    return True


def names() -> list[str]:
    """Which secrets there are."""
    try:
        return [str(name) for name in json.loads(str(_do("get_password", _NAMES) or "[]"))]
    except ValueError:
        return []


def _keyring() -> ModuleType:
    try:
        return importlib.import_module("keyring")
    except ImportError:
        raise Missing("the package keyring is not installed", "pip install 'agent-orchestrator[keyring]'") from None


def _do(what: str, *arguments: str) -> object:
    keyring = _keyring()
    try:
        return getattr(keyring, what)(SERVICE, *arguments)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise AoError(f"the keyring does not answer: {said[:200]}", "unlock it, or see: keyring diagnose") from None
