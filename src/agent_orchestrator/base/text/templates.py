"""The one template language: `{{prompt}}` in commands, messages of reactions, conditions.

Jinja's sandbox, narrowed to what cannot run away: no calls but a few of text's own methods, no assignments, no macros, no
arithmetic that multiplies, and only so many steps. A template is always configuration, if not always the user's own; text from outside
is only ever a value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import UsageError

if TYPE_CHECKING:
    from jinja2 import Environment, Template, nodes
    from jinja2.environment import TemplateExpression

MAX_TEMPLATE = 64 * 1024
MAX_OUTPUT = 1024 * 1024
MAX_LOOPS = 2
"""Loops inside one another."""
MAX_STEPS = 20_000
"""Of one rendering: each turn of a loop is one, each call, each item and each hundred characters that a filter or a method works on."""
MAX_ARGUMENT = 10_000
"""For numbers given to filters: `indent(1000000000)` is a gigabyte."""

FILTERS = [
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "first",
    "float",
    "indent",
    "int",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "round",
    "select",
    "selectattr",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "wordcount",
]
METHODS = frozenset(
    [
        "endswith",
        "get",
        "items",
        "keys",
        "lower",
        "lstrip",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "title",
        "upper",
        "values",
    ]
)
_REFUSED = [
    "Assign",
    "AssignBlock",
    "Block",
    "CallBlock",
    "Extends",
    "FilterBlock",
    "FromImport",
    "Import",
    "Include",
    "Macro",
    "Mod",
    "Mul",
    "Pow",
    "ScopedEvalContextModifier",
    "With",
]


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Fill a template in; an unknown variable, a wrong template or more than a megabyte of output is a `UsageError`."""
    from jinja2 import TemplateError

    compiled = _template(template)
    parts, size = [], 0
    try:
        with _counted():
            for part in compiled.generate(dict(variables)):
                parts.append(part)
                size += len(part)
                if size > MAX_OUTPUT:
                    raise _wrong("template", template, f"gives more than {MAX_OUTPUT} characters")
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _wrong("template", template, f"is wrong: {error}") from None
    return "".join(parts)


def holds(condition: str, variables: Mapping[str, Any]) -> bool:
    """Is this expression (`label == 'needs-tests'`) true of these variables?"""
    from jinja2 import TemplateError

    try:
        with _counted():
            return bool(_expression(_bare(condition))(dict(variables)))
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _wrong("condition", condition, f"is wrong: {error}") from None


def check(template: str, known_names: Iterable[str]) -> None:
    """Refuse a template that is wrong or names a variable which it will not be given."""
    _check_names("template", template, variables_of(template), known_names)


def check_condition(condition: str, known_names: Iterable[str]) -> None:
    """Refuse a condition that is wrong or names a variable which it will not be given."""
    from jinja2 import meta, nodes

    bare = _bare(condition)
    _expression(bare)
    tree = nodes.Template([nodes.Output([_parse_expression(bare)])], lineno=1)
    tree.set_environment(_environment())
    _check_names("condition", condition, meta.find_undeclared_variables(tree), known_names)


@lru_cache(maxsize=512)
def variables_of(template: str) -> frozenset[str]:
    """The variables that a template names."""
    from jinja2 import meta

    _template(template)
    return frozenset(meta.find_undeclared_variables(_environment().parse(template)))


def _check_names(kind: str, source: str, named: Set[str], known_names: Iterable[str]) -> None:
    known = sorted(known_names)
    for name in sorted(named - set(known)):
        near = difflib.get_close_matches(name, known, 1)
        remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
        raise _wrong(kind, source, f"names the unknown variable {name}", remedy)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Counting(ImmutableSandboxedEnvironment):
        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as the sandbox itself has it
            _spend(_weight(getattr(__obj, "__self__", None)))
            return super().call(__context, __obj, *args, **kwargs)

    environment = Counting(
        undefined=StrictUndefined,
        autoescape=False,
        optimized=False,
        keep_trailing_newline=True,
        finalize=lambda value: "" if value is None else value,
    )
    environment.globals.clear()
    known = environment.filters
    known |= {"join": _joining(known["join"]), "indent": _indenting(known["indent"])}
    environment.filters = {name: _bounded(known[name]) for name in FILTERS} | {_EACH: _each}
    return environment


_EACH = "each turn"
"""What every loop's values go through: no name that a template can write."""
_left: ContextVar[int] = ContextVar("steps that are left")


@contextmanager
def _counted() -> Iterator[None]:
    before = _left.set(MAX_STEPS)
    try:
        yield
    finally:
        _left.reset(before)


def _spend(steps: int) -> None:
    _left.set(_left.get() - steps)
    if _left.get() < 0:
        raise ValueError(f"it takes more than {MAX_STEPS} steps")


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return 1 + len(value) // 100
    return 1 + len(value) if isinstance(value, list | tuple | dict) else 1


def _each(values: Any) -> Iterator[Any]:
    for value in values:
        _spend(1)
        yield value


def _joining(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is put between values counts with each of them."""

    @wraps(function)
    def join(context: Any, value: Iterable[Any], d: str = "", attribute: Any = None) -> Any:
        values = list(value)
        _spend(len(values) * len(str(d)) // 100)
        return function(context, values, d, attribute)

    return join


def _indenting(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is put before lines counts with each of them."""

    @wraps(function)
    def indent(s: str, width: int | str = 4, *args: Any, **kwargs: Any) -> Any:
        _spend((s.count("\n") + 1) * (len(width) if isinstance(width, str) else width) // 100)
        return function(s, width, *args, **kwargs)

    return indent


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Stop a chain of filters at the first one that gives too much, or would."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _spend(sum(map(_weight, args)))
        result = function(*args, **kwargs)
        if isinstance(result, str) and len(result) > MAX_OUTPUT:
            raise ValueError(f"a filter gives more than {MAX_OUTPUT} characters")
        return result

    return call


@lru_cache(maxsize=512)
def _template(source: str) -> Template:
    from jinja2 import TemplateSyntaxError, nodes

    _check_size("template", source)
    try:
        tree = _environment().parse(source)
        _check_tree("template", source, tree)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _EACH, [], [], None, None, lineno=loop.lineno)
        return _environment().from_string(tree)
    except TemplateSyntaxError as error:
        raise _wrong("template", source, f"is wrong: {error.message}") from None
    except RecursionError:
        raise _wrong("template", source, "is nested too deeply") from None


@lru_cache(maxsize=512)
def _expression(source: str) -> TemplateExpression:
    _check_size("condition", source)
    _check_tree("condition", source, _parse_expression(source))
    return _environment().compile_expression(source, undefined_to_none=False)


def _parse_expression(source: str) -> nodes.Expr:
    from jinja2 import TemplateSyntaxError
    from jinja2.parser import Parser

    try:
        parser = Parser(_environment(), source, state="variable")
        expression = parser.parse_expression()
        if not parser.stream.eos:
            raise _wrong("condition", source, f"goes on after its end, at {parser.stream.current.value!r}")
    except TemplateSyntaxError as error:
        raise _wrong("condition", source, f"is wrong: {error.message}") from None
    except RecursionError:
        raise _wrong("condition", source, "is nested too deeply") from None
    expression.set_environment(_environment())
    return expression


def _bare(condition: str) -> str:
    """A condition may be written as `{{ … }}` too."""
    stripped = condition.strip()
    return stripped[2:-2].strip() if stripped.startswith("{{") and stripped.endswith("}}") else stripped


def _check_size(kind: str, source: str) -> None:
    if len(source) > MAX_TEMPLATE:
        raise _wrong(kind, source, f"is longer than {MAX_TEMPLATE} characters")


def _check_tree(kind: str, source: str, tree: nodes.Node) -> None:
    from jinja2 import nodes

    for node in (tree, *tree.find_all(nodes.Node)):
        if type(node).__name__ in _REFUSED:
            raise _wrong(kind, source, f"uses {type(node).__name__.lower()}, which templates here may not")
        if isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS):
            raise _wrong(
                kind, source, "calls a function", f"only these methods may be called: {', '.join(sorted(METHODS))}"
            )
        if isinstance(node, nodes.Filter) and any(_is_large(argument) for argument in node.find_all(nodes.Const)):
            raise _wrong(kind, source, f"gives the filter {node.name} a number over {MAX_ARGUMENT}")
    if _loops(tree) > MAX_LOOPS:
        raise _wrong(kind, source, f"has more than {MAX_LOOPS} loops inside one another")


def _is_large(argument: nodes.Const) -> bool:
    return isinstance(argument.value, int | float) and argument.value > MAX_ARGUMENT


def _loops(node: nodes.Node) -> int:
    from jinja2 import nodes

    inside = max((_loops(child) for child in node.iter_child_nodes()), default=0)
    return inside + isinstance(node, nodes.For)


def _wrong(kind: str, source: str, what: str, remedy: str = "") -> UsageError:
    excerpt = source if len(source) <= 80 else source[:79] + "…"
    return UsageError(f"the {kind} {excerpt!r} {what}", remedy)
