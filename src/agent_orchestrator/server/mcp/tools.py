"""What a tool is: a name, what it takes, what it gives, whom it is for, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.server.mcp.scopes import Caller, Scope

LONGEST = 40_000
"""Characters of a text in one answer; the rest is had page by page."""


class Takes(BaseModel):
    """A tool's arguments: in camelCase, and no others than these."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class Nothing(Takes):
    """No arguments."""


class Gives(BaseModel):
    """A tool's answer. Keys that are not named here may be added to it."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")


Given = TypeVar("Given", bound=Takes)
Run = Callable[[Caller, Given], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    about: str
    scope: Scope
    takes: type[Takes]
    gives: type[Gives]
    run: Callable[[Caller, Any], Awaitable[dict[str, Any]]]
    extra: str = ""
    """What a coordinator's project must allow in `coordinator.may`."""
    destroys: bool = False
    """It takes something away that somebody may want to have back."""
    repeats: bool = False
    """Doing it twice is doing it once."""

    known: ClassVar[dict[str, Tool]] = {}

    @property
    def reads(self) -> bool:
        """It changes nothing."""
        return self.scope is Scope.READ or self.name in _LOOKING

    def input_schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema."""
        return _lean(self.takes.model_json_schema(by_alias=True))

    def output_schema(self) -> dict[str, Any]:
        """What it gives, as JSON Schema."""
        return _lean(self.gives.model_json_schema(by_alias=True, mode="serialization"))

    async def call(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do it, for somebody who may."""
        try:
            given = self.takes.model_validate(dict(arguments))
        except ValidationError as error:
            raise UsageError(f"{self.name}: {_faults(error)}", "tools/list tells what it takes") from None
        if not self.reads:
            caller.acting()
        return await self.run(caller, given)


_LOOKING = frozenset({"my_session", "my_messages", "who_touches"})


def tool(
    scope: Scope, gives: type[Gives], *, extra: str = "", destroys: bool = False, repeats: bool = False
) -> Callable[[Run[Given]], Run[Given]]:
    """Make a function a tool: its name and docstring are the tool's, its second argument's type says what it takes."""

    def register(run: Run[Given]) -> Run[Given]:
        takes = _arguments(run)
        about = " ".join((run.__doc__ or "").split())
        Tool.known[run.__name__] = Tool(run.__name__, about, scope, takes, gives, run, extra, destroys, repeats)
        return run

    return register


def _arguments(run: Callable[..., Any]) -> type[Takes]:
    from typing import get_type_hints

    found: type[Takes] = get_type_hints(run)["given"]
    return found


def tools_for(caller: Caller) -> list[Tool]:
    """The tools that are for this caller."""
    return [tool for tool in Tool.known.values() if caller.may(tool.scope, tool.extra)]


def find_tool(caller: Caller, name: str) -> Tool:
    """A tool by its name; one that is not for this caller is not there."""
    found = Tool.known.get(name)
    if found is None or not caller.may(found.scope, found.extra):
        raise NotFound(f"there is no tool {name[:80]!r} for you", "tools/list tells those that there are")
    return found


def cut(text: str, start: int = 0) -> dict[str, Any]:
    """A page of a text: from a character on, as long as an answer may be, and where the next one begins."""
    page = text[start : start + LONGEST]
    end = start + len(page)
    return {"text": page, "next": end if end < len(text) else None}


def _faults(error: ValidationError) -> str:
    told = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg'].lower()}" for one in error.errors()[:3]]
    return "; ".join(told)[:500]


def _lean(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles, which say what the keys say: a model reads this, and every word costs."""

    def lean(part: Any, *, names: bool = False) -> Any:
        if isinstance(part, dict):
            kept = part.items() if names else ((key, value) for key, value in part.items() if key != "title")
            return {key: lean(value, names=key in ("properties", "$defs")) for key, value in kept}
        return [lean(one) for one in part] if isinstance(part, list) else part

    found: dict[str, Any] = lean(schema)
    return found
