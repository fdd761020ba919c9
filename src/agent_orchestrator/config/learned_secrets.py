"""Collects the secrets to redact: values of the environment and the configuration with secret names, and the daemon's own.

They are added to `redaction.REDACTOR`, which filters everything that is recorded, logged, shown or sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from agent_orchestrator.base.text.redaction import REDACTOR, address_parts, has_secret_format

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")

_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
_SECRET_ENDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "API_KEY")
_SECRET_WORDS = frozenset(
    [
        "APIKEY",
        "CREDENTIAL",
        "CREDENTIALS",
        "DSN",
        "KEY",
        "PASS",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PAT",
        "PWD",
        "SECRET",
        "SECRETS",
        "TOKEN",
        "TOKENS",
        "WEBHOOK",
        "WEBHOOKS",
    ]
)


def looks_secret(name: str) -> bool:
    """Return whether a variable's name suggests a secret."""
    upper = name.upper()
    if upper in _NOT_SECRET:
        return False
    return upper.endswith(_SECRET_ENDS) or not _SECRET_WORDS.isdisjoint(upper.split("_"))


def learn_environment(environ: Mapping[str, str]) -> None:
    """Add the secrets of an environment: by the names of its variables, and passwords in addresses whatever their name."""
    REDACTOR.learn({name: value for name, value in environ.items() if looks_secret(name)})
    for name, value in environ.items():
        _learn_passwords(name, value)


def learn_configuration(configs: Iterable[Mapping[str, Any]], environ: Mapping[str, str]) -> None:
    """Add the secrets of configuration files, each given as JSON data with its variables filled in."""
    for config in configs:
        for name, value in _leaves(config, ""):
            if name.endswith("EnvVar"):
                REDACTOR.learn({f"webhook secret {value}": environ.get(value, "")})
            elif looks_secret(_CAMEL.sub("_", name)):
                REDACTOR.learn({name: value})
            _learn_passwords(name, value)
        for name, value in (*_leaves(config.get("notifiers"), ""), *_addresses(config)):
            for part in address_parts(value) if "://" in value else ():
                REDACTOR.learn({f"address of a notifier, {name}": part})


def _addresses(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the addresses in the settings of notifiers, with their keys."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            is_notifier_key = key in ("notifiers", "notificationRouting")
            yield from (
                ((str(key), address) for _, address in _leaves(inner, "") if "://" in address)
                if is_notifier_key
                else _addresses(inner)
            )


def _learn_passwords(name: str, value: str) -> None:
    """Add the passwords in addresses of a value, as written and decoded."""
    for password in _PASSWORD.findall(value) if has_secret_format(value) else ():
        for form in (password, unquote(password)):
            REDACTOR.learn({f"password in {name}": form})


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield every text with its key."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner, name)
    elif isinstance(value, str):
        yield name, value
