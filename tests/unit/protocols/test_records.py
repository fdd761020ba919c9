"""Records behave like frozen dataclasses with slots, although their methods are generated later."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from agent_orchestrator.protocols.records import record


@record
class Point:
    """A point with a field that is not compared."""

    x: int
    y: int = 2
    tags: tuple[str, ...] = ()
    cache: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def sum(self) -> int:
        return self.x + self.y


@record
class Named(Point):
    """A point with a name."""

    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError(self.name)


@record
class Odd:
    """A record that is equal to everything."""

    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def test_records_are_created_compared_printed_and_hashed_like_dataclasses() -> None:
    point = Point(1, tags=("a",))
    assert (point.x, point.y, point.tags, point.cache, point.sum) == (1, 2, ("a",), {}, 3)
    assert point == Point(1, 2, ("a",), {"other": 1}) and point != Point(2) and point != Named(1, 2, ("a",))
    assert repr(point) == "Point(x=1, y=2, tags=('a',))"
    assert {point: 1}[Point(1, 2, ("a",))] == 1
    assert [item.name for item in fields(Named)] == ["x", "y", "tags", "cache", "name"]
    assert replace(point, y=9).y == 9 and asdict(Point(1)) == {"x": 1, "y": 2, "tags": (), "cache": {}}
    assert Point(1).cache is not Point(1).cache
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_records_are_frozen_and_have_slots() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_missing_and_excess_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Named(1, 2, (), {}, "n")  # type: ignore[call-arg]


def test_records_can_be_inherited_and_define_their_own_methods() -> None:
    assert repr(Named(1, name="n")) == "Named(x=1, y=2, tags=(), name='n')"
    with pytest.raises(ValueError, match="bad"):
        Named(1, name="bad")
    assert Odd(1) == Odd(2) and hash(Odd(1)) == 7 and repr(Odd(1)) == "Odd(x=1)"


def test_records_can_be_copied_and_pickled() -> None:
    point = Named(1, 3, ("a",), {"b": 2}, name="n")
    for other in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert other == point and other.cache == {"b": 2} and other.name == "n"


def test_a_plain_subclass_of_a_record_works() -> None:
    class Plain(Point):
        __slots__ = ()

    assert Plain(4).x == 4 and repr(Plain(4)).endswith("Plain(x=4, y=2, tags=())")


def test_records_are_initialized_correctly_by_concurrent_threads() -> None:
    @record
    class Fresh:
        number: int

    begun = Fresh.__init__
    assert Fresh(1).number == 1
    late = Fresh.__new__(Fresh)
    begun(late, 2)
    assert late.number == 2
