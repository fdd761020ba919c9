"""What a tool is: its name, arguments, answer, scope and function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.server.access.caller import Caller, Scope

MAX_TEXT_LENGTH = 40_000
"""Maximum characters of a text in one answer; the rest is on further pages."""


class Arguments(BaseModel):
    """A tool's arguments: in camelCase, and no others than these."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class Nothing(Arguments):
    """No arguments."""


class ToolAnswer(BaseModel):
    """A tool's answer. Keys that are not named here may be added to it."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")


ArgumentsType = TypeVar("ArgumentsType", bound=Arguments)
ToolFunction = Callable[[Caller, ArgumentsType], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    about: str
    scope: Scope
    argument_model: type[Arguments]
    answer_model: type[ToolAnswer]
    run: Callable[[Caller, Any], Awaitable[dict[str, Any]]]
    extra: str = ""
    """What a coordinator's project must allow in `coordinator.may`."""
    is_destructive: bool = False
    """Whether it removes something that may be wanted back."""
    is_idempotent: bool = False
    """Whether calling it twice has the same effect as once."""

    registry: ClassVar[dict[str, Tool]] = {}

    @property
    def is_read_only(self) -> bool:
        """Whether it changes nothing."""
        return self.scope is Scope.READ or self.name in _READ_ONLY

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its arguments."""
        return _without_titles(self.argument_model.model_json_schema(by_alias=True))

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its answer."""
        return _without_titles(self.answer_model.model_json_schema(by_alias=True, mode="serialization"))

    async def call(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check the arguments and run the tool; raise UsageError if they are not valid. The caller's rights are checked before."""
        try:
            parsed = self.argument_model.model_validate(dict(arguments))
        except ValidationError as error:
            raise UsageError(f"{self.name}: {_argument_errors(error)}", "tools/list tells what it takes") from None
        if not self.is_read_only:
            caller.require_current_launch()
        return await self.run(caller, parsed)


_READ_ONLY = frozenset({"my_session", "my_messages", "who_touches"})


def tool(
    scope: Scope,
    answer_model: type[ToolAnswer],
    *,
    extra: str = "",
    is_destructive: bool = False,
    is_idempotent: bool = False,
) -> Callable[[ToolFunction[ArgumentsType]], ToolFunction[ArgumentsType]]:
    """Return a decorator that makes a function a tool: its name and docstring are the tool's, its second argument's type its arguments."""

    def register(run: ToolFunction[ArgumentsType]) -> ToolFunction[ArgumentsType]:
        arguments_model = _argument_model(run)
        about = " ".join((run.__doc__ or "").split())
        Tool.registry[run.__name__] = Tool(
            run.__name__, about, scope, arguments_model, answer_model, run, extra, is_destructive, is_idempotent
        )
        return run

    return register


def _argument_model(run: Callable[..., Any]) -> type[Arguments]:
    """Return the type of a tool function's second argument."""
    from typing import get_type_hints

    model: type[Arguments] = get_type_hints(run)["arguments"]
    return model


def tools_for(caller: Caller) -> list[Tool]:
    """Return the tools that this caller may use."""
    return [tool for tool in Tool.registry.values() if caller.may_use(tool.scope, tool.extra)]


def find_tool(caller: Caller, name: str) -> Tool:
    """Return a tool by its name; raise NotFound if it does not exist or the caller may not use it."""
    candidate = Tool.registry.get(name)
    if candidate is None or not caller.may_use(candidate.scope, candidate.extra):
        raise NotFound(f"there is no tool {name[:80]!r} for you", "tools/list tells those that there are")
    return candidate


def text_page(text: str, start: int = 0) -> dict[str, Any]:
    """Return a page of a text from a character on, as long as an answer may be, and where the next page begins."""
    page = text[start : start + MAX_TEXT_LENGTH]
    end = start + len(page)
    return {"text": page, "next": end if end < len(text) else None}


def _argument_errors(error: ValidationError) -> str:
    """Describe the first three errors of the arguments."""
    messages = [
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg'].lower()}" for fault in error.errors()[:3]
    ]
    return "; ".join(messages)[:500]


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without titles, which repeat the keys: a model reads it, and every token costs."""

    def strip(part: Any, *, names: bool = False) -> Any:
        if isinstance(part, dict):
            items = part.items() if names else ((key, value) for key, value in part.items() if key != "title")
            return {key: strip(value, names=key in ("properties", "$defs")) for key, value in items}
        return [strip(item) for item in part] if isinstance(part, list) else part

    stripped: dict[str, Any] = strip(schema)
    return stripped
