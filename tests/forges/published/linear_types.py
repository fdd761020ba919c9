"""Converts the types of Linear's SDK to a GraphQL schema.

Linear publishes its schema as the generated types of `@linear/sdk`. They contain everything but descriptions, in another notation: objects
have a `__typename`, arguments are types named after their field, nullable types are a `Maybe`. The generator changed names with
several capitals in a row (`IDComparator` became `IdComparator`); our queries use none of those.
"""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^type (\w+) = ((?:\w+ & )*)\{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_ENUM = re.compile(r"^declare enum (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_UNION = re.compile(r"^type (\w+) = (\w+(?: \| \w+)+);", re.MULTILINE)
_FIELD = re.compile(r"^  (\w+)\??: (.+);$", re.MULTILINE)
_NOTE = re.compile(r"^ *\/\*\*.*?\*\/\n", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r'= "(\w+)"')
_BUILT_IN = ("ID", "String", "Boolean", "Int", "Float")


def sdl(declarations: str) -> str:
    """Return the schema in GraphQL's schema language."""
    text = _NOTE.sub("", declarations)
    text = text[: match.start()] if (match := re.search(r"^type \w+Fragment = ", text, re.MULTILINE)) else text
    blocks = {name: (re.findall(r"\w+", parents), body) for name, parents, body in _BLOCK.findall(text)}
    interfaces = {parent for parents, _ in blocks.values() for parent in parents}
    arguments = {name.lower(): body for name, (_, body) in blocks.items() if name.endswith("Args")}
    out = [f"scalar {name}" for name, _ in _FIELD.findall(blocks.pop("Scalars")[1]) if name not in _BUILT_IN]
    for name, (parents, body) in blocks.items():
        fields = [(field, kind) for field, kind in _FIELD.findall(body) if field != "__typename"]
        is_output = "__typename?:" in body or name in interfaces
        if not fields or (name.endswith("Args") and not is_output):
            continue
        keyword = "interface" if name in interfaces else "type" if is_output else "input"
        implements = f" implements {' & '.join(parents)}" if parents else ""
        lines = []
        for field, kind in fields:
            parameters = _FIELD.findall(arguments.get(f"{name}{field}args".lower(), "")) if is_output else []
            parameter_list = ", ".join(
                f"{parameter}: {_type(parameter_kind)}" for parameter, parameter_kind in parameters
            )
            lines.append(f"  {field}{f'({parameter_list})' if parameter_list else ''}: {_type(kind)}")
        out.append(f"{keyword} {name}{implements} {{\n" + "\n".join(lines) + "\n}")
    out += [f"enum {name} {{ {' '.join(_VALUE.findall(body))} }}" for name, body in _ENUM.findall(text)]
    out += [f"union {name} = {members}" for name, members in _UNION.findall(text) if members.split(" ")[0] in blocks]
    return "\n".join(out) + "\n"


def _type(kind: str) -> str:
    if match := re.fullmatch(r"(?:Input)?Maybe<(.+)>", kind):
        return _type(match[1]).removesuffix("!")
    if match := re.fullmatch(r"Array<(.+)>", kind):
        return f"[{_type(match[1])}]!"
    if match := re.fullmatch(r'Scalars\["(\w+)"\]', kind):
        return f"{match[1]}!"
    return f"{kind}!"


def write_schema(declarations: Path) -> Path:
    """Write the schema beside the declarations unless it is there, and return its path."""
    schema_file = declarations.with_name("schema.graphql")
    if not schema_file.exists():
        schema_file.write_text(sdl(declarations.read_text()))
    return schema_file
