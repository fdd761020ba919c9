"""The one template language: `{{prompt}}` in commands, in messages of reaction rules, and in conditions.

It is Jinja's sandbox, restricted so that rendering always ends soon: no calls except a few methods of strings, no
assignments, no macros, no multiplication, and a limited number of steps. A template always comes from a
configuration, but not always from the user's own; text from outside is only ever a value.
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

MAX_TEMPLATE_LENGTH = 64 * 1024
MAX_OUTPUT_LENGTH = 1024 * 1024
MAX_LOOP_DEPTH = 2
"""How deep loops may be nested."""
MAX_STEPS = 20_000
"""Steps per rendering. Each iteration of a loop is one step, each call, each item, and every hundred characters that a filter or
method processes."""
MAX_ARGUMENT = 10_000
"""Limit of numbers passed to filters: `indent(1000000000)` would produce a gigabyte."""

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
_FORBIDDEN_NODES = [
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
"""Jinja's syntax nodes that a template may not contain."""


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Fill in a template. Raises `UsageError` for an unknown variable, an invalid template, or an output of more than a megabyte."""
    from jinja2 import TemplateError

    compiled = _compile_template(template)
    chunks, size = [], 0
    try:
        with _step_limit():
            for chunk in compiled.generate(dict(variables)):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_OUTPUT_LENGTH:
                    raise _template_error("template", template, f"gives more than {MAX_OUTPUT_LENGTH} characters")
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _template_error("template", template, f"is wrong: {error}") from None
    return "".join(chunks)


def is_true(condition: str, variables: Mapping[str, Any]) -> bool:
    """Return whether an expression (`label == 'needs-tests'`) is true for these variables. Raises `UsageError` if it is invalid."""
    from jinja2 import TemplateError

    try:
        with _step_limit():
            return bool(_compile_expression(_without_braces(condition))(dict(variables)))
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _template_error("condition", condition, f"is wrong: {error}") from None


def check(template: str, known_names: Iterable[str]) -> None:
    """Raise `UsageError` for a template that is invalid or uses a variable not in `known_names`."""
    _check_names("template", template, variables_of(template), known_names)


def check_condition(condition: str, known_names: Iterable[str]) -> None:
    """Raise `UsageError` for a condition that is invalid or uses a variable not in `known_names`."""
    from jinja2 import meta, nodes

    expression = _without_braces(condition)
    _compile_expression(expression)
    tree = nodes.Template([nodes.Output([_parse_expression(expression)])], lineno=1)
    tree.set_environment(_jinja_environment())
    _check_names("condition", condition, meta.find_undeclared_variables(tree), known_names)


@lru_cache(maxsize=512)
def variables_of(template: str) -> frozenset[str]:
    """Return the variables that a template uses."""
    from jinja2 import meta

    _compile_template(template)
    return frozenset(meta.find_undeclared_variables(_jinja_environment().parse(template)))


def _check_names(kind: str, source: str, used_names: Set[str], known_names: Iterable[str]) -> None:
    """Raise `UsageError` if `used_names` has a name that is not in `known_names`; suggest the most similar one."""
    sorted_names = sorted(known_names)
    for name in sorted(used_names - set(sorted_names)):
        similar_names = difflib.get_close_matches(name, sorted_names, 1)
        remedy = f"did you mean {similar_names[0]}?" if similar_names else f"known: {', '.join(sorted_names) or 'none'}"
        raise _template_error(kind, source, f"names the unknown variable {name}", remedy)


@lru_cache(maxsize=1)
def _jinja_environment() -> Environment:
    """Return the sandboxed Jinja environment that all templates share."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class CountingEnvironment(ImmutableSandboxedEnvironment):
        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as the sandbox itself has it
            _spend(_cost_of(getattr(__obj, "__self__", None)))
            return super().call(__context, __obj, *args, **kwargs)

    environment = CountingEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        optimized=False,
        keep_trailing_newline=True,
        finalize=lambda value: "" if value is None else value,
    )
    environment.globals.clear()
    filters = environment.filters
    filters |= {"join": _limit_join(filters["join"]), "indent": _limit_indent(filters["indent"])}
    environment.filters = {name: _limit_filter(filters[name]) for name in FILTERS} | {_COUNT_FILTER: _count_iterations}
    return environment


_COUNT_FILTER = "each turn"
"""Name of the filter that is added to the values of every loop; a template cannot write this name."""
_steps_left: ContextVar[int] = ContextVar("steps that are left")


@contextmanager
def _step_limit() -> Iterator[None]:
    """Limit the number of steps in the block to `MAX_STEPS`."""
    token = _steps_left.set(MAX_STEPS)
    try:
        yield
    finally:
        _steps_left.reset(token)


def _spend(steps: int) -> None:
    """Count some steps. Raises `ValueError` if none are left."""
    _steps_left.set(_steps_left.get() - steps)
    if _steps_left.get() < 0:
        raise ValueError(f"it takes more than {MAX_STEPS} steps")


def _cost_of(value: Any) -> int:
    """Return the number of steps that processing a value costs."""
    if isinstance(value, str):
        return 1 + len(value) // 100
    return 1 + len(value) if isinstance(value, list | tuple | dict) else 1


def _count_iterations(values: Any) -> Iterator[Any]:
    """Yield the values of a loop, counting one step for each."""
    for value in values:
        _spend(1)
        yield value


def _limit_join(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the filter `join`, so that the separator's length counts once per value."""

    @wraps(function)
    def join(context: Any, value: Iterable[Any], d: str = "", attribute: Any = None) -> Any:
        values = list(value)
        _spend(len(values) * len(str(d)) // 100)
        return function(context, values, d, attribute)

    return join


def _limit_indent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the filter `indent`, so that the indentation's length counts once per line."""

    @wraps(function)
    def indent(s: str, width: int | str = 4, *args: Any, **kwargs: Any) -> Any:
        _spend((s.count("\n") + 1) * (len(width) if isinstance(width, str) else width) // 100)
        return function(s, width, *args, **kwargs)

    return indent


def _limit_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter, so that it counts its steps and fails if its result is too long: this stops a chain of filters early."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _spend(sum(map(_cost_of, args)))
        result = function(*args, **kwargs)
        if isinstance(result, str) and len(result) > MAX_OUTPUT_LENGTH:
            raise ValueError(f"a filter gives more than {MAX_OUTPUT_LENGTH} characters")
        return result

    return call


@lru_cache(maxsize=512)
def _compile_template(source: str) -> Template:
    """Return the compiled template. Raises `UsageError` if it is invalid."""
    from jinja2 import TemplateSyntaxError, nodes

    _check_size("template", source)
    try:
        tree = _jinja_environment().parse(source)
        _check_tree("template", source, tree)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _COUNT_FILTER, [], [], None, None, lineno=loop.lineno)
        return _jinja_environment().from_string(tree)
    except TemplateSyntaxError as error:
        raise _template_error("template", source, f"is wrong: {error.message}") from None
    except RecursionError:
        raise _template_error("template", source, "is nested too deeply") from None


@lru_cache(maxsize=512)
def _compile_expression(source: str) -> TemplateExpression:
    """Return the compiled condition. Raises `UsageError` if it is invalid."""
    _check_size("condition", source)
    _check_tree("condition", source, _parse_expression(source))
    return _jinja_environment().compile_expression(source, undefined_to_none=False)


def _parse_expression(source: str) -> nodes.Expr:
    """Return the syntax tree of a condition. Raises `UsageError` if it is invalid."""
    from jinja2 import TemplateSyntaxError
    from jinja2.parser import Parser

    try:
        parser = Parser(_jinja_environment(), source, state="variable")
        expression = parser.parse_expression()
        if not parser.stream.eos:
            raise _template_error("condition", source, f"goes on after its end, at {parser.stream.current.value!r}")
    except TemplateSyntaxError as error:
        raise _template_error("condition", source, f"is wrong: {error.message}") from None
    except RecursionError:
        raise _template_error("condition", source, "is nested too deeply") from None
    expression.set_environment(_jinja_environment())
    return expression


def _without_braces(condition: str) -> str:
    """Return a condition without the `{{ … }}` that it may be written in."""
    stripped = condition.strip()
    return stripped[2:-2].strip() if stripped.startswith("{{") and stripped.endswith("}}") else stripped


def _check_size(kind: str, source: str) -> None:
    """Raise `UsageError` if the source is too long."""
    if len(source) > MAX_TEMPLATE_LENGTH:
        raise _template_error(kind, source, f"is longer than {MAX_TEMPLATE_LENGTH} characters")


def _check_tree(kind: str, source: str, tree: nodes.Node) -> None:
    """Raise `UsageError` if a syntax tree contains what templates may not use."""
    from jinja2 import nodes

    for node in (tree, *tree.find_all(nodes.Node)):
        if type(node).__name__ in _FORBIDDEN_NODES:
            raise _template_error(kind, source, f"uses {type(node).__name__.lower()}, which templates here may not")
        if isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS):
            raise _template_error(
                kind, source, "calls a function", f"only these methods may be called: {', '.join(sorted(METHODS))}"
            )
        if isinstance(node, nodes.Filter) and any(_is_large(argument) for argument in node.find_all(nodes.Const)):
            raise _template_error(kind, source, f"gives the filter {node.name} a number over {MAX_ARGUMENT}")
    if _loop_depth(tree) > MAX_LOOP_DEPTH:
        raise _template_error(kind, source, f"has more than {MAX_LOOP_DEPTH} loops inside one another")


def _is_large(argument: nodes.Const) -> bool:
    """Return whether a constant is a number over the limit."""
    return isinstance(argument.value, int | float) and argument.value > MAX_ARGUMENT


def _loop_depth(node: nodes.Node) -> int:
    """Return how deep loops are nested in a node."""
    from jinja2 import nodes

    depth_below = max((_loop_depth(child) for child in node.iter_child_nodes()), default=0)
    return depth_below + isinstance(node, nodes.For)


def _template_error(kind: str, source: str, problem: str, remedy: str = "") -> UsageError:
    """Return the error for a template or condition, with an excerpt of it."""
    excerpt = source if len(source) <= 80 else source[:79] + "…"
    return UsageError(f"the {kind} {excerpt!r} {problem}", remedy)
