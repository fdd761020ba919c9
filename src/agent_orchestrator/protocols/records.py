"""Frozen dataclasses with slots, whose methods are compiled when the first instance is created.

A daemon defines hundreds of record classes and uses few of them; `dataclass` compiles six methods for each when it
is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields, make_dataclass
from threading import Lock
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_compile_lock = Lock()
_COPIED_FIELD_OPTIONS = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Return the class as a record; works like `dataclass(frozen=True, slots=True)`."""
    attributes = cls.__dict__
    record_class = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in _METHODS.items():
        if name not in attributes:
            setattr(record_class, name, method)
    return record_class


def _complete(self: Any, name: str) -> Callable[..., Any]:
    """Give the record's class the methods that `dataclass` generates; return the one with this name."""
    with _compile_lock:
        cls = next(base for base in type(self).__mro__ if name in base.__dict__)
        if cls.__dict__[name] is _METHODS[name]:  # otherwise another thread did it first
            _compile(cls)
        method: Callable[..., Any] = cls.__dict__[name]
        return method


def _compile(cls: type[Any]) -> None:
    """Replace the placeholder methods of a class by those that `dataclass` generates."""
    field_specs = [(item.name, item.type, _copy_field(item)) for item in fields(cls)]
    post_init = getattr(cls, "__post_init__", None)
    compiled_class = make_dataclass(
        cls.__name__, field_specs, frozen=True, namespace={"__post_init__": post_init} if post_init is not None else {}
    )
    for method_name in _COMPILED_METHODS:
        if cls.__dict__.get(method_name) is _METHODS[method_name]:
            setattr(cls, method_name, compiled_class.__dict__[method_name])


def _copy_field(source: Field[Any]) -> Any:
    """Return a new field with the same options."""
    return field(**{name: getattr(source, name) for name in _COPIED_FIELD_OPTIONS})


def _init(self: Any, /, *values: Any, **named: Any) -> None:
    _complete(self, "__init__")(self, *values, **named)


def _repr(self: Any) -> str:
    text: str = _complete(self, "__repr__")(self)
    return text


def _eq(self: Any, other: object) -> bool:
    is_equal: bool = _complete(self, "__eq__")(self, other)
    return is_equal


def _hash(self: Any) -> int:
    number: int = _complete(self, "__hash__")(self)
    return number


def _setattr(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


_COMPILED_METHODS = ("__init__", "__repr__", "__eq__", "__hash__")
_METHODS: dict[str, Callable[..., Any]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
