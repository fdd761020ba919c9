"""Read and change every text in a dataclass or JSON data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


def collect_texts(value: Any, keep: Collection[str], texts: list[str]) -> None:
    """Append every text in a dataclass or JSON data to `texts`, except below the names in `keep`."""
    if isinstance(value, str):
        texts.append(value)
    elif value is None or isinstance(value, int | float):
        return
    elif isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            collect_texts(inner, keep, texts)
    elif hasattr(value, "__dataclass_fields__"):
        for name in _field_names(cast("Hashable", type(value))):
            if name not in keep:
                collect_texts(getattr(value, name), keep, texts)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in keep:
                collect_texts(inner, keep, texts)


def map_texts(value: T, change: Callable[[str], str], keep: Collection[str] = ()) -> T:
    """Return a dataclass or JSON data with `change` applied to every text in it, except below the names in `keep`; keys stay."""
    changed: T = _map_texts(value, change, keep)
    return changed


def _map_texts(value: Any, clean: Callable[[str], str], keep: Collection[str]) -> Any:
    """Return a dataclass or JSON data with `clean` applied to every text, except below the names in `keep`."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: inner if name in keep else _map_texts(inner, clean, keep) for name, inner in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return type(value)(_map_texts(inner, clean, keep) for inner in value)
    if hasattr(value, "__dataclass_fields__"):
        old_values = {
            name: getattr(value, name) for name in _field_names(cast("Hashable", type(value))) if name not in keep
        }
        new_values = {name: _map_texts(inner, clean, keep) for name, inner in old_values.items()}
        changed = {name: inner for name, inner in new_values.items() if inner != old_values[name]}
        return replace(value, **changed) if changed else value
    return value


@cache
def _field_names(kind: Hashable) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(field.name for field in fields(cast("Any", kind)))
