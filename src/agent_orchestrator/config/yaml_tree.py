"""A YAML document as plain mappings and lists that remember the line and the spelling of each key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agent_orchestrator.config.problems import ConfigNotes
from agent_orchestrator.config.units import quote_value

MAX_NODES = 20_000
MAX_DEPTH = 60

_TAG = "tag:yaml.org,2002:"
_VARIABLE = re.compile(r"\$(\$\{)|\$\{((?:keyring:)?[A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KEYRING = "keyring:"
MAX_SECRETS = 50
"""The most keyring secrets in one file: each is a call of another program, which may ask the user."""
_BRACKET = re.compile(r"[\[{\]}]")
_MARK = re.compile(r"[,:](?=\s)|[-?]\s|[\[{&*]")
MAX_MARKS = 10_000
MAX_DIGITS = 100
"""The most digits of a number. A longer one is kept as text, since nothing calculates with it."""
MAX_BRACKETS = 100
"""The most brackets open at the same time. The YAML library takes a second per few thousand marks, and longer for nested ones."""


class Section(dict[str, Any]):
    """A mapping that remembers the line and the spelling of each key, also after a key was renamed or moved."""

    def __init__(self, line: int = 1) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.spelled: dict[str, str] = {}

    def put(self, key: str, value: Any, line: int | None = None, spelled: str | None = None) -> None:
        """Set a key, with the line and spelling that it came from."""
        self[key] = value
        self.lines[key] = self.line if line is None else line
        self.spelled[key] = key if spelled is None else spelled

    def move(self, key: str, target: Section, name: str) -> bool:
        """Remove a key and set it in another section under a name, unless the name is taken there. Return whether it was set."""
        line, spelled = self.lines.pop(key, self.line), self.spelled.pop(key, key)
        value = self.pop(key)
        if name in target:
            return False
        target.put(name, value, line, spelled)
        return True

    def drop(self, key: str) -> Any:
        """Remove a key and return its value."""
        self.lines.pop(key, None)
        self.spelled.pop(key, None)
        return self.pop(key)

    def section(self, key: str, line: int | None = None) -> Section:
        """Return the section under a key, created if the key is missing.

        If the key holds something else, that stays, and the section returned is not part of the tree.
        """
        existing = self.get(key)
        if isinstance(existing, Section):
            return existing
        section = Section(self.line if line is None else line)
        if existing is None:
            self.put(key, section, section.line)
        return section


class Items(list[Any]):
    """A list that remembers the line of each item."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []

    def add(self, value: Any, line: int) -> None:
        """Append an item with its line."""
        self.append(value)
        self.lines.append(line)


class WrittenInt(int):
    """An integer that remembers how it was written: `010` may be meant as text."""

    written: str


class WrittenFloat(float):
    """A float that remembers how it was written: `1.10` may be a branch name."""

    written: str


def parse(text: str, notes: ConfigNotes) -> Section:
    """Parse a document. Errors of its form become problems in `notes`; the section is then empty or partial."""
    if why := _exceeded_limit(text):
        notes.add_problem(1, "", why)
        return Section()
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False
    try:
        node = yaml.compose(text)
        if node is None:
            return Section()
        return _Builder(notes).document(node)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = " ".join(str(error.problem or error.context or "not YAML").split())
        notes.add_problem(line, "", f"not valid YAML at column {column}: {what}", _hint(text, line))
    except YAMLError as error:
        notes.add_problem(1, "", f"not valid YAML: {' '.join(str(error).split())[:120]}")
    except RecursionError:
        notes.add_problem(1, "", "nested too deeply")
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, AssertionError) as error:
        # The YAML library reports some malformed documents by errors of its own code.
        notes.add_problem(1, "", f"not valid YAML: {type(error).__name__}")
    return Section()


def _exceeded_limit(text: str) -> str:
    """Return why the YAML library would take too long to parse this text, or ""."""
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > MAX_BRACKETS:
            return "nested too deeply"
    marks = sum(1 for _ in _MARK.finditer(text))
    return f"{marks} keys and items, or marks that look like them: at most {MAX_MARKS}" if marks > MAX_MARKS else ""


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return "indent with spaces, not tabs"
    return "correct the indentation or quoting there"


class _Builder:
    """Builder of sections and lists from YAML nodes, with limits on size and depth."""

    def __init__(self, notes: ConfigNotes) -> None:
        self._notes = notes
        self._count = 0
        self._open: set[int] = set()

    def document(self, node: Node) -> Section:
        """Return the document's top section; report it if it is not a mapping."""
        line = _line(node)
        if not isinstance(node, MappingNode):
            if not (isinstance(node, ScalarNode) and node.tag == _TAG + "null"):
                self._notes.add_problem(
                    line, "", "the file is not a mapping of keys", "begin with a key such as projects:"
                )
            return Section(line)
        value = self.value(node, ())
        return value if isinstance(value, Section) else Section(line)

    def value(self, node: Node, path: tuple[str, ...]) -> Any:
        """Return the value of a node; None, with a problem, if it exceeds a limit or contains itself."""
        self._count += 1
        if self._count > MAX_NODES:
            if self._count == MAX_NODES + 1:
                self._notes.add_problem(
                    _line(node), ".".join(path[:4]), f"more than {MAX_NODES} values", "use fewer aliases"
                )
            return None
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open or len(path) > MAX_DEPTH:
            why = "contains itself" if id(node) in self._open else "nested too deeply"
            self._notes.add_problem(_line(node), ".".join(path[:4]), why)
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            return self._list(node, path) if isinstance(node, SequenceNode) else None
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: tuple[str, ...]) -> Section:
        section = Section(_line(node))
        merges: list[tuple[Node, int]] = []
        for key_node, value_node in node.value:
            line = _line(key_node)
            if not isinstance(key_node, ScalarNode):
                self._notes.add_problem(line, ".".join(path), "a key is a list or a mapping", "write a plain key")
                continue
            key = str(key_node.value)
            if key == "<<" and key_node.style is None:
                merges.append((value_node, line))
            elif key in section:
                self._notes.add_problem(
                    line, ".".join((*path, key)), f"given twice, first in line {section.lines[key]}"
                )
            else:
                section.put(key, self.value(value_node, (*path, key)), line)
        for merged, line in merges:
            self._merge(section, merged, line, path)
        return section

    def _merge(self, section: Section, node: Node, line: int, path: tuple[str, ...]) -> None:
        """Add the keys of a `<<` merge that the section does not have itself."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in sources:
            value = self.value(source, (*path, "<<"))
            if not isinstance(value, Section):
                self._notes.add_problem(
                    line, ".".join((*path, "<<")), f"{quote_value(value)} cannot be merged", "merge a mapping"
                )
                continue
            for key in value:
                if key not in section:
                    section.put(key, value[key], value.lines[key])

    def _list(self, node: SequenceNode, path: tuple[str, ...]) -> Items:
        items = Items()
        for position, item in enumerate(node.value):
            items.add(self.value(item, (*path, str(position))), _line(item))
            if self._count > MAX_NODES:
                break
        return items

    def _scalar(self, node: ScalarNode, path: tuple[str, ...]) -> Any:
        """Return a scalar as Python's type for its YAML tag, or as text if it cannot be converted."""
        tag, text = str(node.tag), str(node.value)
        if not tag.startswith(_TAG) or tag.removeprefix(_TAG) not in _PLAIN_TAGS:
            self._notes.add_problem(
                _line(node), ".".join(path), f"the tag {quote_value(tag)} is not accepted", "write a plain value"
            )
            return None
        kind = tag.removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("true", "yes", "on", "y")
        if len(text) > MAX_DIGITS:
            return text
        try:
            if kind == "int":
                whole = WrittenInt(
                    text.replace("_", ""), 0 if text.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else 10
                )
                whole.written = text
                return whole
            if kind == "float":
                real = WrittenFloat(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
                real.written = text
                return real
        except ValueError:
            return text
        return text


_PLAIN_TAGS = frozenset({"null", "bool", "int", "float", "str", "timestamp", "value", "merge"})


def _line(node: Node) -> int:
    mark = node.start_mark
    return mark.line + 1 if mark is not None else 1


SecretLookup = Callable[[str], str | None]
"""Takes a name and returns its value, or None if it has none."""


def expand_variables(
    tree: Section, environ: Mapping[str, str], notes: ConfigNotes, keyring: SecretLookup | None = None
) -> None:
    """Replace `${NAME}`, `${keyring:NAME}` and `${NAME:-default}` in all texts, and `$${` by `${`.

    A plugin option or environment variable whose variable is not set is left out, with a warning; anywhere else it is a problem. Without
    a `keyring`, references to its secrets stay as they are.
    """
    secrets: dict[str, str | None] = {}

    def look_up(name: str) -> str | None:
        if not name.startswith(_KEYRING):
            return environ.get(name)
        if name not in secrets and len(secrets) == MAX_SECRETS:
            notes.add_problem(1, "", f"more than {MAX_SECRETS} secrets of the keyring", "have fewer in one file")
            return ""
        if name not in secrets:
            secrets[name] = keyring(name.removeprefix(_KEYRING)) if keyring else f"${{{name}}}"
        return secrets[name]

    _expand_section(tree, look_up, notes, ())
    notes.has_unread_secrets = bool(secrets) and keyring is None


_LEFT_OUT_WARNING = (
    "left out, for the variable {0} is not set where the daemon was started: set {0}, then ao shutdown and ao start"
)
_MAY_BE_UNSET = frozenset({"env", "notifiers", "tracker", "scm", "terminal", "cluster", "options"})


def _expand_section(section: Section, look_up: SecretLookup, notes: ConfigNotes, path: tuple[str, ...]) -> None:
    optional = bool(_MAY_BE_UNSET & set(path))
    for key in list(section):
        value, key_path = section[key], (*path, key)
        if isinstance(value, str):
            text, missing = _expand_text(value, look_up, notes)
            if missing and optional:
                notes.add_warning(section.lines[key], ".".join(key_path), _LEFT_OUT_WARNING.format(missing))
                section.drop(key)
                continue
            section[key] = _required(text, missing, section.lines[key], key_path, notes)
        else:
            _expand_inside(value, look_up, notes, key_path)


def _expand_inside(value: Any, look_up: SecretLookup, notes: ConfigNotes, path: tuple[str, ...]) -> None:
    if isinstance(value, Section):
        _expand_section(value, look_up, notes, path)
    elif isinstance(value, Items):
        for position, item in enumerate(value):
            item_path = (*path, str(position))
            if isinstance(item, str):
                text, missing = _expand_text(item, look_up, notes)
                value[position] = _required(text, missing, value.lines[position], item_path, notes)
            else:
                _expand_inside(item, look_up, notes, item_path)


def _required(text: str, missing: str, line: int, path: tuple[str, ...], notes: ConfigNotes) -> str:
    if missing:
        remedy = f"set {missing} and restart the daemon (ao shutdown, ao start), or write $${{{missing}}} if it is meant literally"
        notes.add_problem(line, ".".join(path), f"the variable {missing} is not set", remedy)
    return text


def _expand_text(text: str, look_up: SecretLookup, notes: ConfigNotes) -> tuple[str, str]:
    """Return the text with variables replaced, and the name of the first missing one or ""."""
    missing: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return "${"
        variable_value = look_up(match[2])
        value = variable_value or match[3]
        if variable_value:
            notes.variables.add(match[2])
        if value is None:
            if variable_value is not None:
                return ""
            missing.append(match[2])
            return match[0]
        return value

    return _VARIABLE.sub(replace, text), missing[0] if missing else ""


def locate(tree: Any, path: tuple[str | int, ...]) -> tuple[int, str]:
    """Return line and key, as the user spelled it, of a path in the normalised tree."""
    line, names = getattr(tree, "line", 1), []
    for step in path:
        if isinstance(tree, Section) and isinstance(step, str) and step in tree:
            line = tree.lines.get(step, line)
            names.append(tree.spelled.get(step, step))
            tree = tree[step]
        elif isinstance(tree, Items) and isinstance(step, int) and step < len(tree):
            line = tree.lines[step]
            names.append(str(step))
            tree = tree[step]
        else:
            if step != "[key]":
                names.append(str(step))
            break
    return line, ".".join(names)


def without_positions(tree: Any) -> Any:
    """Return the same content without lines and spellings."""
    if isinstance(tree, Mapping):
        return {key: without_positions(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [without_positions(item) for item in tree]
    if isinstance(tree, WrittenInt):
        return int(tree)
    return float(tree) if isinstance(tree, WrittenFloat) else tree


def sections(value: Any) -> Iterator[tuple[str, Section]]:
    """Yield the named sections of a map of sections. Anything else in the map is skipped; the model refuses it later."""
    if isinstance(value, Section):
        for key in list(value):
            if isinstance(value[key], Section):
                yield key, value[key]
