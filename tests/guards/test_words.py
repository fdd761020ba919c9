"""Which words names and docstrings do not use: the glossary in docs/contributing has one word for each thing, and these are the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "scripts")

VAGUE_NAMES = frozenset(
    {
        "asked",
        "came",
        "found",
        "given",
        "known",
        "look",
        "looks",
        "made",
        "one",
        "said",
        "seen",
        "shown",
        "spoken",
        "taken",
        "tell",
        "tells",
        "told",
        "took",
        "wanted",
    }
)
"""Names that say nothing about what they name."""
VAGUE_CONSTANTS = frozenset(
    {
        "AGAIN",
        "AT_ONCE",
        "GRACE",
        "KEPT",
        "LARGEST",
        "LONG",
        "LONGEST",
        "LOOK_AGAIN",
        "MORE",
        "MOST",
        "ODD",
        "PATIENCE",
        "QUIET",
        "REMEMBERED",
        "SOON",
        "SOME",
        "TOGETHER",
        "WITHIN",
    }
)
"""Constants that name no quantity: say what is limited, and in which unit."""
MIRRORS = ("server/schema/", "server/mcp/", "client/api/", "cli/scaffold/", "sync.py")
"""Where a class may have the name of the class that it shows to others."""
WORDS_IN_NAMES = frozenset(
    {
        "anew",
        "collide",
        "collides",
        "collision",
        "collisions",
        "judge",
        "judged",
        "judgement",
        "judges",
        "judging",
        "land",
        "landed",
        "landing",
        "lands",
        "mend",
        "mended",
        "mending",
        "mends",
        "nobody",
        "somebody",
        "told",
        "whoever",
    }
)
"""Words that are no part of a name."""
WORDS_IN_DOCSTRINGS = re.compile(
    r"\b(told|tells?|telling|whoever|somebody|nobody|anew|mend(?:s|ed|ing)?|land(?:s|ed|ing)?|comes? to|came to|of its own"
    r"|by itself|by himself|at its word|bear(?:s|ing)? out|borne out|take[sn]? up|took up|collid(?:e|es|ed|ing)|collisions?"
    r"|turn(?:s|ed)? away|call(?:s|ed)? off|judge(?:s|d|ment|ments)?|judging|just now|lead out|whatever it is)\b",
    re.IGNORECASE,
)
STORED = frozenset({"LandingFailed", "LandingWaits", "asked", "known", "landed", "landing", "made", "said", "wanted"})
"""Names that follow stored ones: event types, fields of events and of saved facts, keys of JSON files."""


def modules() -> Iterator[Path]:
    """Yield all modules of the project."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def defined_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each name that a module with these nodes defines, with its line."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield 0, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def docstrings(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each docstring, of attributes too, without its code, with its line; the help of a command is text for users."""
    helps = {id(node.body[0]) for node in nodes if isinstance(node, ast.FunctionDef) and _is_command(node)}
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node) not in helps:
            yield node.lineno, re.sub("`[^`]*`", "", str(node.value.value))


def _is_command(function: ast.FunctionDef) -> bool:
    """Return whether a function is a command of the command line."""
    decorators = (ast.unparse(decorator) for decorator in function.decorator_list)
    return any(re.search(r"\b(command|group)\(", decorator) for decorator in decorators)


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def problems() -> Iterator[tuple[Path, int, str]]:
    """Yield each place where a word is used that the glossary replaces."""
    for path in modules():
        if path == Path(__file__):
            continue
        relative = path.relative_to(ROOT)
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        for word in words_of(path.stem):
            if word in WORDS_IN_NAMES or word in VAGUE_NAMES:
                yield relative, 0, f"module name: {word}"
        for line, name in defined_names(nodes):
            if name in STORED:
                continue
            if name.strip("_").lower() in VAGUE_NAMES or name.strip("_") in VAGUE_CONSTANTS:
                yield relative, line, f"name: {name}"
            elif banned := WORDS_IN_NAMES & set(words_of(name)):
                yield relative, line, f"name: {name} ({', '.join(sorted(banned))})"
        for line, text in docstrings(nodes):
            for match in WORDS_IN_DOCSTRINGS.finditer(text):
                yield relative, line, f"docstring: {match[0]}"


@pytest.mark.long
def test_names_and_docstrings_use_the_words_of_the_glossary() -> None:
    places = [f"{path}:{line}: {what}" for path, line, what in problems()]
    assert not places, f"{len(places)} places, see docs/contributing/glossary.md:\n" + "\n".join(places[:50])


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    package = ROOT / "src/agent_orchestrator"
    for path in sorted(package.rglob("*.py")):
        relative = str(path.relative_to(package))
        if relative.startswith(MIRRORS):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.strip("_"), []).append(f"{relative}:{node.lineno}")
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert not repeated, f"class names with several meanings: {repeated}"


def test_constants_named_in_docstrings_exist() -> None:
    trees = {path: ast.parse(path.read_bytes()) for path in sorted((ROOT / "src").rglob("*.py"))}
    docstring_nodes = {
        id(node.value)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    names: set[str] = {"TIOCSTI"}
    for tree in trees.values():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    names.add(name)
                case ast.Constant(value=str(text)) if id(node) not in docstring_nodes:
                    names |= set(re.findall(r"\w+", text))
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for name in re.findall(r"`(_?[A-Z][A-Z_]{2,})`", str(node.value.value))
        if name not in names
    ]
    assert not missing, f"docstrings name constants that are not there: {missing}"
