"""Group failures that likely have one cause. Look here if failures were grouped wrongly.

Pure and deterministic: the same failures give the same groups, in the same order.

Each failure gets keys, by the strongest thing that is known of it, and failures that share a key are one group:

1. a missing name, attribute, module or argument, whether a test, a type checker or a linter reports it;
2. the file and line in the project's own code, outside of its tests, where the error was raised;
3. for an assertion in a test: the function that returned the wrong result; if that is unknown, the test's file, and with it the
   cause of that file's other failing tests if they have exactly one;
4. for a failure of a type checker or compiler: its file, and its line if tests fail there too;
5. for a failure of a linter: its rule, and also its file if the rule is broken often;
6. otherwise the file, else the command.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_orchestrator.fleet.fixes.model import StackFrame, ToolFailure

MAX_FILES_PER_RULE_CAUSE = 8
"""If a rule is broken at most this often, it is one cause, in however many files."""
MAX_TITLE_LENGTH = 100
ALL_FAILURES_KEY = "all"
"""The key of a group that is not one cause, but all failures."""

_TYPE_CHECKERS = ("mypy", "tsc", "go", "cargo")
_TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec)/|(?:^|/)(?:test_[^/]*|[^/]*_test|[^/]*\.(?:test|spec)|conftest)\.\w+$"
)
_MISSING_PATTERNS: Sequence[tuple[str, re.Pattern[str]]] = (
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
_SOURCE_LINE = re.compile(r"^ {4}(\S.*)$")
_ASSERTION_DETAIL = re.compile(r"^E? *\+ +where .*? = ((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\(", re.MULTILINE)
_ASSERTION_CALL = re.compile(r"(?:^|\.)(?:assert|expect)\w*(?:$|\.)")
_HELPER_CALLS = frozenset(
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
class FailureGroup:
    """Failures that likely have one cause."""

    key: str
    title: str
    failures: tuple[ToolFailure, ...]

    @property
    def tools(self) -> dict[str, int]:
        """Failures by tool."""
        return dict(Counter(failure.tool for failure in self.failures))

    @property
    def files(self) -> tuple[str, ...]:
        """The files that likely have to be changed: where errors were raised, else where failures were reported."""
        frames = [_source_frame(failure) for failure in self.failures]
        files = [frame.file for frame in frames if frame] or [failure.file for failure in self.failures if failure.file]
        return tuple(dict.fromkeys(files))


def group_failures(failures: Sequence[ToolFailure], kinds: Mapping[str, str]) -> list[FailureGroup]:
    """Return the causes of failures, the biggest first; `kinds`: tool → what kind of tool it is."""
    rule_counts = Counter((each_failure.tool, each_failure.rule) for each_failure in failures)
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        """Return the key that represents the group of a key."""
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    keys = [
        _cause_keys(each_failure, kinds.get(each_failure.tool, ""), rule_counts[each_failure.tool, each_failure.rule])
        for each_failure in failures
    ]
    test_keys = {
        key for failure, failure_keys in zip(failures, keys, strict=True) if failure.test for key in failure_keys
    }
    for failure, failure_keys in zip(failures, keys, strict=True):
        # The same failure in several places needs one fix.
        links = [key for key in failure_keys[1:] if key in test_keys]
        for linked_key in (
            *links,
            f"id:{failure.tool}:{failure.id}",
            *_shared_cause(failure, failure_keys, failures, keys),
        ):
            first, second = sorted((find(failure_keys[0]), find(linked_key)), key=_key_rank)
            leader[second] = first
    members: dict[str, list[ToolFailure]] = {}
    for failure, failure_keys in zip(failures, keys, strict=True):
        members.setdefault(find(failure_keys[0]), []).append(failure)
    groups = [
        FailureGroup(key, _group_title(key, group_members), tuple(group_members))
        for key, group_members in members.items()
    ]
    return sorted(groups, key=lambda cause: (-len(cause.failures), cause.key))


def merge_groups(groups: Sequence[FailureGroup]) -> FailureGroup:
    """Return all failures of these groups as one group, for one agent."""
    failures = tuple(failure for cause in groups for failure in cause.failures)
    return FailureGroup(ALL_FAILURES_KEY, f"{len(failures)} failures, {len(groups)} causes", failures)


def _shared_cause(
    failure: ToolFailure, own_keys: Sequence[str], failures: Sequence[ToolFailure], keys: Sequence[Sequence[str]]
) -> list[str]:
    """Return the one cause that the other failing tests of a test's file have, for a test that is known by its file only."""
    if not own_keys[0].startswith("test:"):
        return []
    causes = {
        test_keys[0]
        for test_failure, test_keys in zip(failures, keys, strict=True)
        if test_failure.test and test_failure.file == failure.file and not test_keys[0].startswith("test:")
    }
    return list(causes) if len(causes) == 1 else []


def _key_rank(key: str) -> tuple[int, str]:
    """Return the sort key of a cause's key: the strongest kind of key first."""
    order = ("missing", "at", "call", "types", "rule", "test", "file", "tool", "id")
    return order.index(key.partition(":")[0]), key


def _cause_keys(failure: ToolFailure, kind: str, rule_count: int) -> list[str]:
    """Return the keys of a failure, the strongest first; `kind` is the kind of its tool, `often` how often its rule is broken."""
    if missing := _missing_key(failure):
        return [missing]
    if failure.test:
        source = _source_frame(failure)
        if source:
            return [f"at:{source.file}:{source.line}"]
        function = _called_function(failure)
        return [f"call:{function}"] if function else [f"test:{failure.file or failure.id}"]
    if kind in _TYPE_CHECKERS and failure.file:
        keys = [f"types:{failure.file}"]
        return [*keys, f"at:{failure.file}:{failure.line}"] if failure.line else keys
    if failure.rule:
        rule_key = f"rule:{failure.tool}:{failure.rule}"
        return [rule_key if rule_count <= MAX_FILES_PER_RULE_CAUSE else f"{rule_key}:{failure.file}"]
    return [f"file:{failure.file}"] if failure.file else [f"tool:{failure.tool}"]


def _missing_key(failure: ToolFailure) -> str:
    """Return the key of the missing name, attribute, module or argument that a failure reports, or "" if it reports none."""
    for kind, pattern in _MISSING_PATTERNS:
        if match := pattern.search(failure.message):
            groups = match.groupdict()
            owner = f"{groups['owner']}." if groups.get("owner") else ""
            return f"missing:{kind}:{owner}{groups['name']}"
    return ""


def _source_frame(failure: ToolFailure) -> StackFrame | None:
    """Return the innermost place outside of tests where the project's own code raised the error, or None if there is none."""
    return next((frame for frame in reversed(failure.frames) if not _TEST_FILE.search(frame.file)), None)


def _called_function(failure: ToolFailure) -> str:
    """Return the function whose result a test did not expect, or "" if it is unknown."""
    lines = [match[1] for line in failure.detail.split("\n") if (match := _SOURCE_LINE.match(line))]
    candidates = [*_ASSERTION_DETAIL.findall(failure.detail), *_call_names(reversed(lines))]
    return next((name for name in candidates if name not in _HELPER_CALLS and not _ASSERTION_CALL.search(name)), "")


def _call_names(lines: Iterable[str]) -> Iterable[str]:
    """Yield the names of the functions that these lines of code call."""
    for line in lines:
        yield from _CALL.findall(line)


def _group_title(key: str, failures: Sequence[ToolFailure]) -> str:
    """Return the title of a group, by the kind of its key."""
    key_kind, _, rest = key.partition(":")
    first = failures[0]
    if key_kind == "missing":
        kind, _, name = rest.partition(":")
        text = f"{kind} {name} is missing"
    elif key_kind == "at":
        failed_test = next((failure for failure in failures if failure.test), first)
        text = f"{failed_test.rule or failed_test.message} at {rest}"
    elif key_kind == "call":
        text = f"{rest}() does not give what tests expect"
    elif key_kind == "types":
        text = f"{first.tool}: {first.message} ({rest})" if len(failures) == 1 else f"type errors in {rest}"
    elif key_kind == "rule":
        location = (
            first.file
            if len({failure.file for failure in failures}) == 1
            else f"{len({failure.file for failure in failures})} files"
        )
        text = f"{first.tool} {first.rule} in {location}: {first.message}"
    elif key_kind == "test":
        text = f"tests fail in {rest}"
    else:
        text = first.message or rest
    text = " ".join(text.split())
    return text if len(text) <= MAX_TITLE_LENGTH else f"{text[: MAX_TITLE_LENGTH - 1]}…"
