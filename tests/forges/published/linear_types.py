"""Linear's schema out of its SDK.

Linear publishes its schema as the generated types of `@linear/sdk`. They say everything but descriptions, in another notation: objects
have a `__typename`, arguments are types named after their field, what may be null is a `Maybe`. The generator rewrote names with
several capitals in a row (`IDComparator` became `IdComparator`); our queries name none of those.
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
    """The schema in GraphQL's own language."""
    text = _NOTE.sub("", declarations)
    text = text[: found.start()] if (found := re.search(r"^type \w+Fragment = ", text, re.MULTILINE)) else text
    blocks = {name: (re.findall(r"\w+", parents), body) for name, parents, body in _BLOCK.findall(text)}
    interfaces = {parent for parents, _ in blocks.values() for parent in parents}
    arguments = {name.lower(): body for name, (_, body) in blocks.items() if name.endswith("Args")}
    out = [f"scalar {name}" for name, _ in _FIELD.findall(blocks.pop("Scalars")[1]) if name not in _BUILT_IN]
    for name, (parents, body) in blocks.items():
        fields = [(field, kind) for field, kind in _FIELD.findall(body) if field != "__typename"]
        is_output = "__typename?:" in body or name in interfaces
        if not fields or (name.endswith("Args") and not is_output):
            continue
        word = "interface" if name in interfaces else "type" if is_output else "input"
        of = f" implements {' & '.join(parents)}" if parents else ""
        lines = []
        for field, kind in fields:
            given = _FIELD.findall(arguments.get(f"{name}{field}args".lower(), "")) if is_output else []
            shown = ", ".join(f"{one}: {_type(of_one)}" for one, of_one in given)
            lines.append(f"  {field}{f'({shown})' if shown else ''}: {_type(kind)}")
        out.append(f"{word} {name}{of} {{\n" + "\n".join(lines) + "\n}")
    out += [f"enum {name} {{ {' '.join(_VALUE.findall(body))} }}" for name, body in _ENUM.findall(text)]
    out += [f"union {name} = {members}" for name, members in _UNION.findall(text) if members.split(" ")[0] in blocks]
    return "\n".join(out) + "\n"


def _type(kind: str) -> str:
    if found := re.fullmatch(r"(?:Input)?Maybe<(.+)>", kind):
        return _type(found[1]).removesuffix("!")
    if found := re.fullmatch(r"Array<(.+)>", kind):
        return f"[{_type(found[1])}]!"
    if found := re.fullmatch(r'Scalars\["(\w+)"\]', kind):
        return f"{found[1]}!"
    return f"{kind}!"


def written(declarations: Path) -> Path:
    """The schema's file beside the declarations, made once."""
    schema = declarations.with_name("schema.graphql")
    if not schema.exists():
        schema.write_text(sdl(declarations.read_text()))
    return schema
