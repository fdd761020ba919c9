"""What a slot's class requires of a plugin, and what it provides by default.

A slot with defaults marks what it requires as abstract. A plugin that inherits from the slot's class has the defaults;
`add_defaults` gives them to one that does not. A slot that marks nothing requires all it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any


def required_methods(slot: type[Any]) -> list[str]:
    """Return the names of the methods that a plugin of the slot must have."""
    return [name for name, value in _public(slot) if callable(value) and name not in _defaults(slot)]


def missing_members(slot: type[Any], plugin: object) -> list[str]:
    """Return the names of the methods and attributes that the slot requires and the plugin does not have."""
    attributes = [name for name in vars(slot).get("__annotations__", {}) if name not in vars(slot)]
    return [name for name in (*required_methods(slot), *attributes) if not hasattr(plugin, name)]


def add_defaults(slot: type[Any], plugin: object) -> None:
    """Give a plugin that does not inherit from the slot's class the defaults that it lacks.

    Raises `AttributeError` or `TypeError` if its attributes cannot be set.
    """
    for name, value in _defaults(slot).items():
        if not hasattr(plugin, name):
            setattr(plugin, name, partial(value, plugin) if callable(value) else value)


def _defaults(slot: type[Any]) -> dict[str, Any]:
    """Return what the slot provides itself: empty if it marks nothing as abstract."""
    if not getattr(slot, "__abstractmethods__", None):
        return {}
    return {name: value for name, value in _public(slot) if not getattr(value, "__isabstractmethod__", False)}


def _public(slot: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a slot's class, with their names."""
    return ((name, value) for name, value in vars(slot).items() if not name.startswith("_"))
