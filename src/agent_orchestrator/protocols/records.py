"""Frozen dataclasses with slots whose methods are compiled when one is first made.

A daemon knows hundreds of kinds of records and makes few of them; `dataclass` compiles six methods for each when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields, make_dataclass
from threading import Lock
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_completing = Lock()
_COPIED = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Like `dataclass(frozen=True, slots=True)`."""
    own = cls.__dict__
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in _METHODS.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _complete(self: Any, name: str) -> Callable[..., Any]:
    """Give the record's class the methods that `dataclass` makes; returns the one that was called."""
    with _completing:
        cls = next(one for one in type(self).__mro__ if name in one.__dict__)
        if cls.__dict__[name] is _METHODS[name]:  # else another thread was first
            _compile(cls)
        method: Callable[..., Any] = cls.__dict__[name]
        return method


def _compile(cls: type[Any]) -> None:
    specified = [(one.name, one.type, _again(one)) for one in fields(cls)]
    after = getattr(cls, "__post_init__", None)
    whole = make_dataclass(
        cls.__name__, specified, frozen=True, namespace={"__post_init__": after} if after is not None else {}
    )
    for each in _COMPILED:
        if cls.__dict__.get(each) is _METHODS[each]:
            setattr(cls, each, whole.__dict__[each])


def _again(one: Field[Any]) -> Any:
    return field(**{name: getattr(one, name) for name in _COPIED})


def _init(self: Any, /, *values: Any, **named: Any) -> None:
    _complete(self, "__init__")(self, *values, **named)


def _repr(self: Any) -> str:
    text: str = _complete(self, "__repr__")(self)
    return text


def _eq(self: Any, other: object) -> bool:
    same: bool = _complete(self, "__eq__")(self, other)
    return same


def _hash(self: Any) -> int:
    number: int = _complete(self, "__hash__")(self)
    return number


def _setattr(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_COMPILED = ("__init__", "__repr__", "__eq__", "__hash__")
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
