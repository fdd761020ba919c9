"""Records are frozen dataclasses with slots, in everything but when their methods are made."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from agent_orchestrator.protocols.records import record


@record
class Point:
    """A place."""

    x: int
    y: int = 2
    tags: tuple[str, ...] = ()
    seen: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def sum(self) -> int:
        return self.x + self.y


@record
class Named(Point):
    """One with a name."""

    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError(self.name)


@record
class Odd:
    """Equal to everything."""

    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def test_they_are_made_compared_shown_and_hashed_like_dataclasses() -> None:
    one = Point(1, tags=("a",))
    assert (one.x, one.y, one.tags, one.seen, one.sum) == (1, 2, ("a",), {}, 3)
    assert one == Point(1, 2, ("a",), {"other": 1}) and one != Point(2) and one != Named(1, 2, ("a",))
    assert repr(one) == "Point(x=1, y=2, tags=('a',))"
    assert {one: 1}[Point(1, 2, ("a",))] == 1
    assert [item.name for item in fields(Named)] == ["x", "y", "tags", "seen", "name"]
    assert replace(one, y=9).y == 9 and asdict(Point(1)) == {"x": 1, "y": 2, "tags": (), "seen": {}}
    assert Point(1).seen is not Point(1).seen
    match one:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_they_cannot_be_changed_and_have_no_other_attributes() -> None:
    one = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    assert not hasattr(one, "__dict__")


def test_what_is_missing_or_too_much_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Named(1, 2, (), {}, "n")  # type: ignore[call-arg]


def test_inheritance_and_what_a_class_says_itself() -> None:
    assert repr(Named(1, name="n")) == "Named(x=1, y=2, tags=(), name='n')"
    with pytest.raises(ValueError, match="bad"):
        Named(1, name="bad")
    assert Odd(1) == Odd(2) and hash(Odd(1)) == 7 and repr(Odd(1)) == "Odd(x=1)"


def test_they_are_copied_and_pickled() -> None:
    one = Named(1, 3, ("a",), {"b": 2}, name="n")
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other == one and other.seen == {"b": 2} and other.name == "n"


def test_a_class_that_derives_without_saying_so_works_too() -> None:
    class Plain(Point):
        __slots__ = ()

    assert Plain(4).x == 4 and repr(Plain(4)).endswith("Plain(x=4, y=2, tags=())")


def test_a_thread_that_had_begun_to_make_one_while_another_made_the_first_gets_one() -> None:
    @record
    class Fresh:
        number: int

    begun = Fresh.__init__
    assert Fresh(1).number == 1
    late = Fresh.__new__(Fresh)
    begun(late, 2)
    assert late.number == 2
