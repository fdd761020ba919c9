"""Convert frozen dataclasses to JSON data and back, by their type hints; used for snapshots of facts."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def dump(value: Any) -> Any:
    """Return a dataclass, or a tuple or mapping of dataclasses, as JSON data."""
    if is_dataclass(value):
        return {item.name: dump(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): dump(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [dump(inner) for inner in value]
    return value


def load(hint: Any, data: Any) -> Any:
    """Return the data that `dump` returned as the type that the hint names. Raises `TypeError` or `KeyError` if it does not fit."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return load(next(inner for inner in typing.get_args(hint) if inner is not type(None)), data)
    if origin is tuple:
        return tuple(load(typing.get_args(hint)[0], inner) for inner in data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = typing.get_args(hint)[1]
        return {name: load(inner, value) for name, value in data.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        return hint(**{name: load(hints[name], value) for name, value in data.items()})
    return data


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the resolved type hints of a class."""
    return typing.get_type_hints(cls)
