"""Which failures likely have one cause. Pure and deterministic: the same failures give the same groups, in the same order.

Each failure gets keys, by the strongest thing that is known of it, and failures that share a key are one group:

1. a name, attribute, module or argument that is missing: whoever complains of it, test, type checker or linter;
2. where in the project's own code, outside of its tests, the error was raised: file and line;
3. for an assertion in a test: the function that gave the wrong result; where that cannot be told, the test's file, and with it the one
   cause that the file's other failing tests have;
4. a type checker's or compiler's complaint: its file, and its line if tests fail there too;
5. a linter's complaint: its rule, and its file as well where the rule is broken often;
6. otherwise the file, else the command.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_orchestrator.fleet.fixes.model import Failure, Frame

FEW = 8
"""A rule that is broken at most so often is one cause, in however many files."""
LONGEST_TITLE = 100
ALL = "all"
"""The key of a group that is not one cause, but everything."""

_TYPE_CHECKERS = ("mypy", "tsc", "go", "cargo")
_TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec)/|(?:^|/)(?:test_[^/]*|[^/]*_test|[^/]*\.(?:test|spec)|conftest)\.\w+$"
)
_MISSING: Sequence[tuple[str, re.Pattern[str]]] = (
    ("argument", re.compile(r"(?P<owner>\w+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")),
    ("argument", re.compile(r'Unexpected keyword argument "(?P<name>\w+)" for "(?P<owner>\w+)"')),
    ("module", re.compile(r"No module named ['\"](?P<name>[\w.]+)['\"]")),
    ("module", re.compile(r"module named \"(?P<name>[\w.]+)\"")),
    ("module", re.compile(r"Cannot find module ['\"](?P<name>[^'\"]+)['\"]")),
    ("name", re.compile(r"cannot import name ['\"](?P<name>\w+)['\"]")),
    ("name", re.compile(r"(?i)\bmodule ['\"][\w.]+['\"] has no (?:exported member|attribute) ['\"](?P<name>\w+)['\"]")),
    ("name", re.compile(r"\bname ['\"](?P<name>\w+)['\"] is not defined", re.IGNORECASE)),
    ("name", re.compile(r"Undefined name `(?P<name>\w+)`")),
    ("name", re.compile(r"Cannot find name '(?P<name>\w+)'")),
    ("name", re.compile(r"^'(?P<name>\w+)' is not defined")),
    ("name", re.compile(r"^undefined: (?P<name>[\w.]+)")),
    ("name", re.compile(r"cannot find \w+ `(?P<name>\w+)`")),
    ("name", re.compile(r"ReferenceError: (?P<name>\w+) is not defined")),
    ("attribute", re.compile(r"['\"](?P<owner>\w+)['\"](?: object)? has no attribute ['\"](?P<name>\w+)['\"]")),
)
_CALL = re.compile(r"(?<![\w.])((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\(")
_SOURCE = re.compile(r"^ {4}(\S.*)$")
_WHERE = re.compile(r"^E? *\+ +where .*? = ((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\(", re.MULTILINE)
_ASSERTS = re.compile(r"(?:^|\.)(?:assert|expect)\w*(?:$|\.)")
_NOT_A_CALL = frozenset(
    {
        "len",
        "str",
        "int",
        "float",
        "list",
        "set",
        "dict",
        "tuple",
        "sorted",
        "repr",
        "sum",
        "min",
        "max",
        "abs",
        "all",
        "any",
    }
    | {
        "isinstance",
        "type",
        "round",
        "bool",
        "range",
        "enumerate",
        "zip",
        "map",
        "filter",
        "next",
        "iter",
        "expect",
        "not",
    }
    | {"approx", "pytest.approx", "pytest.raises", "raises", "and", "or", "in", "if", "print", "open", "assert"}
)


@dataclass(frozen=True, slots=True)
class Group:
    """Failures that likely have one cause."""

    key: str
    title: str
    failures: tuple[Failure, ...]

    @property
    def tools(self) -> dict[str, int]:
        """Failures by tool."""
        return dict(Counter(one.tool for one in self.failures))

    @property
    def files(self) -> tuple[str, ...]:
        """What likely has to be changed: where errors were raised, else where they were seen."""
        raised = [_source(one) for one in self.failures]
        files = [frame.file for frame in raised if frame] or [one.file for one in self.failures if one.file]
        return tuple(dict.fromkeys(files))


def group(failures: Sequence[Failure], kinds: Mapping[str, str]) -> list[Group]:
    """The causes, the biggest first; `kinds`: tool → what kind of tool it is."""
    often = Counter((one.tool, one.rule) for one in failures)
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    keys = [_keys(one, kinds.get(one.tool, ""), often[one.tool, one.rule]) for one in failures]
    raised = {key for failure, mine in zip(failures, keys, strict=True) if failure.test for key in mine}
    for failure, mine in zip(failures, keys, strict=True):
        # The same failure at several places is one thing to be fixed.
        links = [key for key in mine[1:] if key in raised]
        for other in (*links, f"id:{failure.tool}:{failure.id}", *_only_one(failure, mine, failures, keys)):
            first, second = sorted((find(mine[0]), find(other)), key=_strength)
            leader[second] = first
    members: dict[str, list[Failure]] = {}
    for failure, mine in zip(failures, keys, strict=True):
        members.setdefault(find(mine[0]), []).append(failure)
    groups = [Group(key, _title(key, ones), tuple(ones)) for key, ones in members.items()]
    return sorted(groups, key=lambda one: (-len(one.failures), one.key))


def as_one(groups: Sequence[Group]) -> Group:
    """All of these failures, for one agent."""
    failures = tuple(one for each in groups for one in each.failures)
    return Group(ALL, f"{len(failures)} failures, {len(groups)} causes", failures)


def _only_one(
    failure: Failure, mine: Sequence[str], failures: Sequence[Failure], keys: Sequence[Sequence[str]]
) -> list[str]:
    """For a test of which nothing more is known: the one cause that its file's other failing tests have."""
    if not mine[0].startswith("test:"):
        return []
    others = {
        other[0]
        for one, other in zip(failures, keys, strict=True)
        if one.test and one.file == failure.file and not other[0].startswith("test:")
    }
    return list(others) if len(others) == 1 else []


def _strength(key: str) -> tuple[int, str]:
    order = ("missing", "at", "call", "types", "rule", "test", "file", "tool", "id")
    return order.index(key.partition(":")[0]), key


def _keys(failure: Failure, kind: str, often: int) -> list[str]:
    if missing := _missing(failure):
        return [missing]
    if failure.test:
        source = _source(failure)
        if source:
            return [f"at:{source.file}:{source.line}"]
        called = _called(failure)
        return [f"call:{called}"] if called else [f"test:{failure.file or failure.id}"]
    if kind in _TYPE_CHECKERS and failure.file:
        keys = [f"types:{failure.file}"]
        return [*keys, f"at:{failure.file}:{failure.line}"] if failure.line else keys
    if failure.rule:
        one = f"rule:{failure.tool}:{failure.rule}"
        return [one if often <= FEW else f"{one}:{failure.file}"]
    return [f"file:{failure.file}"] if failure.file else [f"tool:{failure.tool}"]


def _missing(failure: Failure) -> str:
    for what, pattern in _MISSING:
        if match := pattern.search(failure.message):
            named = match.groupdict()
            owner = f"{named['owner']}." if named.get("owner") else ""
            return f"missing:{what}:{owner}{named['name']}"
    return ""


def _source(failure: Failure) -> Frame | None:
    """Where the project's own code raised it: the innermost place outside of tests."""
    return next((frame for frame in reversed(failure.frames) if not _TEST_FILE.search(frame.file)), None)


def _called(failure: Failure) -> str:
    """The function whose result a test did not expect."""
    lines = [match[1] for line in failure.detail.split("\n") if (match := _SOURCE.match(line))]
    candidates = [*_WHERE.findall(failure.detail), *_names(reversed(lines))]
    return next((name for name in candidates if name not in _NOT_A_CALL and not _ASSERTS.search(name)), "")


def _names(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield from _CALL.findall(line)


def _title(key: str, failures: Sequence[Failure]) -> str:
    what, _, rest = key.partition(":")
    first = failures[0]
    if what == "missing":
        kind, _, name = rest.partition(":")
        text = f"{kind} {name} is missing"
    elif what == "at":
        raised = next((one for one in failures if one.test), first)
        text = f"{raised.rule or raised.message} at {rest}"
    elif what == "call":
        text = f"{rest}() does not give what tests expect"
    elif what == "types":
        text = f"{first.tool}: {first.message} ({rest})" if len(failures) == 1 else f"type errors in {rest}"
    elif what == "rule":
        where = (
            first.file if len({one.file for one in failures}) == 1 else f"{len({one.file for one in failures})} files"
        )
        text = f"{first.tool} {first.rule} in {where}: {first.message}"
    elif what == "test":
        text = f"tests fail in {rest}"
    else:
        text = first.message or rest
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"
