"""The interfaces of a TypeScript declaration file, as far as answers can be held against them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Fields = dict[str, tuple[bool, str]]
"""By name: is it required, and its type as written."""
_HEAD = re.compile(r"^interface (\w+)(?: extends (.+?))? \{$", re.MULTILINE)
_FIELD = re.compile(r"^'?(\w+)'?(\?)?: ", re.MULTILINE)
_BASE = re.compile(r"(?:MappedOmit|Omit)<(\w+), ([^>]*)>|(\w+)(?:<[^>]*>)?")
_PLAIN: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "boolean": bool}


class Declarations:
    def __init__(self, path: Path) -> None:
        self._text = path.read_text()
        self._known: dict[str, Fields] = {}

    def fields(self, name: str) -> Fields:
        """Of an interface, with those that it inherits."""
        if name not in self._known:
            found = next(match for match in _HEAD.finditer(self._text) if match[1] == name)
            own = self._body(found.end())
            inherited: Fields = {}
            for base in _BASE.finditer(found[2] or ""):
                if base[1]:
                    gone = re.findall(r"'(\w+)'", base[2])
                    inherited |= {key: value for key, value in self.fields(base[1]).items() if key not in gone}
                elif base[3] != "Record" and any(match[1] == base[3] for match in _HEAD.finditer(self._text)):
                    inherited |= self.fields(base[3])
            self._known[name] = {**inherited, **_fields(own)}
        return self._known[name]

    def _body(self, start: int) -> str:
        depth = 1
        for position in range(start, len(self._text)):
            depth += {"{": 1, "}": -1}.get(self._text[position], 0)
            if depth == 0:
                return self._text[start:position]
        raise ValueError("an interface has no end")

    def problems(self, name: str, value: Any, at: str = "") -> list[str]:
        """What an answer lacks, or has of another kind. Null is taken anywhere: the declarations are not exact about it."""
        if not isinstance(value, dict):
            return [f"{at or name} is no object"]
        found = []
        for key, (required, kind) in self.fields(name).items():
            if key in value:
                found += self._typed(kind, value[key], f"{at or name}.{key}")
            elif required:
                found.append(f"{at or name} has no {key}")
        return found

    def _typed(self, kind: str, value: Any, at: str) -> list[str]:
        if value is None:
            return []
        problems = [self._one(option, value, at) for option in _options(kind) if option != "null"]
        return [] if any(not found for found in problems) else problems[0]

    def _one(self, kind: str, value: Any, at: str) -> list[str]:
        if kind.endswith("[]"):
            items = value if isinstance(value, list) else None
            if items is None:
                return [f"{at} is no list"]
            return [problem for item in items for problem in self._typed(kind[:-2].strip("()"), item, f"{at}[]")]
        if kind in _PLAIN:
            exact = isinstance(value, _PLAIN[kind]) and (kind == "boolean") == isinstance(value, bool)
            return [] if exact else [f"{at}: {value!r} is no {kind}"]
        if kind.startswith("'"):
            return [] if value == kind.strip("'") else [f"{at}: {value!r} is not {kind}"]
        if kind.startswith("{"):
            return self._object(_fields(kind[1:-1]), value, at)
        named = re.fullmatch(r"(?:MappedOmit|Omit)<(\w+), '(\w+)'>|(\w+)", kind)
        name = (named[1] or named[3]) if named else ""
        if name and any(match[1] == name for match in _HEAD.finditer(self._text)):
            gone = named[2] if named else None
            kept = {key: found for key, found in self.fields(name).items() if key != gone}
            return self._object(kept, value, at)
        return []

    def _object(self, fields: Fields, value: Any, at: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{at} is no object"]
        found = [f"{at} has no {key}" for key, (required, _) in fields.items() if required and key not in value]
        for key, (_, kind) in fields.items():
            if key in value:
                found += self._typed(kind, value[key], f"{at}.{key}")
        return found


def _options(kind: str) -> list[str]:
    """The parts of a union."""
    found, depth = [""], 0
    for letter in kind:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found]


def _fields(body: str) -> Fields:
    """The fields of one level: what is inside an inner object belongs to it."""
    found: Fields = {}
    depth, start = 0, 0
    for position, letter in enumerate(body):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == ";" and depth == 0:
            text = body[start:position].strip()
            start = position + 1
            named = _FIELD.match(text)
            if named:
                found[named[1]] = (named[2] is None, " ".join(text[named.end() :].split()))
    return found
