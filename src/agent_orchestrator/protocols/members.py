"""What a slot's base class requires of a plugin, and what it provides by default.

A base class marks what it requires as abstract. A plugin that inherits from it has the defaults; `with_defaults` gives them to a
class that does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

_MISSING = object()


class _Overridden:
    """An attribute that is true for a class which overrides some methods of the class that the attribute is defined in."""

    def __init__(self, methods: tuple[str, ...]) -> None:
        self._methods = methods
        self._base: type[Any] | None = None

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._base = self._base or owner

    def __get__(self, instance: object, owner: type[Any]) -> bool:
        return all(getattr(owner, name) is not getattr(self._base, name) for name in self._methods)


def overridden(*methods: str) -> bool:
    """Return an attribute for a base class: whether a plugin's class overrides these methods."""
    return cast("bool", _Overridden(methods))


def required_methods(slot: type[Any]) -> list[str]:
    """Return the names of the methods that a plugin of the slot must have."""
    return [name for name, value in _public_members(slot) if callable(value) and name not in _default_members(slot)]


def required_members(slot: type[Any]) -> list[str]:
    """Return the names of the methods and attributes that a plugin of the slot must have."""
    attributes = [name for name in vars(slot).get("__annotations__", {}) if name not in vars(slot)]
    return [*required_methods(slot), *attributes]


def missing_members(plugin: object, members: Iterable[str]) -> list[str]:
    """Return those of the members that a plugin or its class does not have, or only inherits as abstract."""
    values = {name: getattr(plugin, name, _MISSING) for name in members}
    return [
        name for name, value in values.items() if value is _MISSING or getattr(value, "__isabstractmethod__", False)
    ]


def with_defaults(slot: type[Any], cls: type[Any]) -> type[Any]:
    """Return the class, or a subclass with the slot's defaults that it lacks if it does not inherit from the slot's base class.

    The subclass counts as one of the base class.
    """
    if slot in cls.__mro__:
        return cls
    defaults = {name: value for name, value in _default_members(slot).items() if not hasattr(cls, name)}
    return cast("type[Any]", slot.register(type(cls.__name__, (cls,), {**_description_attributes(cls), **defaults})))


def _description_attributes(cls: type[Any]) -> dict[str, Any]:
    """Return the attributes by which a subclass has the same name and description."""
    return {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}


def _default_members(slot: type[Any]) -> dict[str, Any]:
    """Return the public members of the slot's class that are not abstract."""
    return {name: value for name, value in _public_members(slot) if not getattr(value, "__isabstractmethod__", False)}


def _public_members(slot: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a slot's class, with their names."""
    return ((name, value) for name, value in vars(slot).items() if not name.startswith("_"))
