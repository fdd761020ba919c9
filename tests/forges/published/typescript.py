"""The interfaces of a TypeScript declaration file, to check JSON answers against."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Fields = dict[str, tuple[bool, str]]
"""Fields by name: whether each is required, and its type as written."""
_HEAD = re.compile(r"^interface (\w+)(?: extends (.+?))? \{$", re.MULTILINE)
_FIELD = re.compile(r"^'?(\w+)'?(\?)?: ", re.MULTILINE)
_BASE = re.compile(r"(?:MappedOmit|Omit)<(\w+), ([^>]*)>|(\w+)(?:<[^>]*>)?")
_PLAIN: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "boolean": bool}


class TypeScriptDeclarations:
    def __init__(self, path: Path) -> None:
        self._text = path.read_text()
        self._fields: dict[str, Fields] = {}

    def fields(self, name: str) -> Fields:
        """Return the fields of an interface, with the inherited ones."""
        if name not in self._fields:
            declaration = next(match for match in _HEAD.finditer(self._text) if match[1] == name)
            body = self._body(declaration.end())
            inherited: Fields = {}
            for base in _BASE.finditer(declaration[2] or ""):
                if base[1]:
                    omitted = re.findall(r"'(\w+)'", base[2])
                    inherited |= {key: value for key, value in self.fields(base[1]).items() if key not in omitted}
                elif base[3] != "Record" and any(match[1] == base[3] for match in _HEAD.finditer(self._text)):
                    inherited |= self.fields(base[3])
            self._fields[name] = {**inherited, **_fields(body)}
        return self._fields[name]

    def _body(self, start: int) -> str:
        depth = 1
        for position in range(start, len(self._text)):
            depth += {"{": 1, "}": -1}.get(self._text[position], 0)
            if depth == 0:
                return self._text[start:position]
        raise ValueError("an interface has no end")

    def problems(self, name: str, value: Any, location: str = "") -> list[str]:
        """Return the missing and wrongly typed fields of an answer. Null is accepted anywhere: the declarations are not exact about it."""
        if not isinstance(value, dict):
            return [f"{location or name} is no object"]
        problems = []
        for key, (required, kind) in self.fields(name).items():
            if key in value:
                problems += self._check_field(kind, value[key], f"{location or name}.{key}")
            elif required:
                problems.append(f"{location or name} has no {key}")
        return problems

    def _check_field(self, kind: str, value: Any, location: str) -> list[str]:
        if value is None:
            return []
        problems = [self._check_type(option, value, location) for option in _options(kind) if option != "null"]
        return [] if any(not option_problems for option_problems in problems) else problems[0]

    def _check_type(self, kind: str, value: Any, location: str) -> list[str]:
        if kind.endswith("[]"):
            items = value if isinstance(value, list) else None
            if items is None:
                return [f"{location} is no list"]
            return [
                problem for item in items for problem in self._check_field(kind[:-2].strip("()"), item, f"{location}[]")
            ]
        if kind in _PLAIN:
            exact = isinstance(value, _PLAIN[kind]) and (kind == "boolean") == isinstance(value, bool)
            return [] if exact else [f"{location}: {value!r} is no {kind}"]
        if kind.startswith("'"):
            return [] if value == kind.strip("'") else [f"{location}: {value!r} is not {kind}"]
        if kind.startswith("{"):
            return self._check_object(_fields(kind[1:-1]), value, location)
        match = re.fullmatch(r"(?:MappedOmit|Omit)<(\w+), '(\w+)'>|(\w+)", kind)
        name = (match[1] or match[3]) if match else ""
        if name and any(head[1] == name for head in _HEAD.finditer(self._text)):
            omitted = match[2] if match else None
            fields = {key: field for key, field in self.fields(name).items() if key != omitted}
            return self._check_object(fields, value, location)
        return []

    def _check_object(self, fields: Fields, value: Any, location: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{location} is no object"]
        problems = [
            f"{location} has no {key}" for key, (required, _) in fields.items() if required and key not in value
        ]
        for key, (_, kind) in fields.items():
            if key in value:
                problems += self._check_field(kind, value[key], f"{location}.{key}")
        return problems


def _options(kind: str) -> list[str]:
    """Return the parts of a union type."""
    options, depth = [""], 0
    for letter in kind:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "|" and depth == 0:
            options.append("")
        else:
            options[-1] += letter
    return [part.strip() for part in options]


def _fields(body: str) -> Fields:
    """Return the fields of one level, without those of inner objects."""
    fields: Fields = {}
    depth, start = 0, 0
    for position, letter in enumerate(body):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == ";" and depth == 0:
            text = body[start:position].strip()
            start = position + 1
            match = _FIELD.match(text)
            if match:
                fields[match[1]] = (match[2] is None, " ".join(text[match.end() :].split()))
    return fields
