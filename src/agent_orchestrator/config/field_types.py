"""The types of configuration values: texts, names, templates, units. Each error says what is accepted."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from agent_orchestrator.config import units
from agent_orchestrator.config.problems import nearest
from agent_orchestrator.config.templates import AGENT_VARIABLES, BRANCH_VARIABLES, check_condition, check_template
from agent_orchestrator.core.rules.default_rules import TRIGGERS
from agent_orchestrator.core.rules.model import ACTIONS, MERGE_STRATEGIES, PRIORITIES, TEMPLATE_VARIABLES
from agent_orchestrator.protocols.text import SHELL_CHARACTERS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _text(value: Any) -> Any:
    """Return text. Numbers are returned as they were written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(getattr(value, "written", value))
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("contains a NUL character")
    return value


def _texts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _inside(value: str) -> str:
    parts = value.replace("\\", "/").split("/")
    if value.startswith(("/", "~", "\\")) or ".." in parts or not value.strip():
        raise ValueError(
            f"{units.quote_value(value)} is not a path inside the repository; write it relative to its root"
        )
    return value


def _folder(value: str) -> str:
    parts = _inside(value).rstrip("/").split("/")
    if any(part in ("", ".", ".git") for part in parts) or re.search(r'[*?"\\\x00-\x1f\x7f]', value):
        raise ValueError(
            f"{units.quote_value(value)} is no folder of the repository; write its whole name, without patterns"
        )
    return "/".join(parts)


def _plain_path(value: str) -> str:
    if interpreted := SHELL_CHARACTERS.search(value):
        raise ValueError(
            f"{units.quote_value(value)} contains {units.quote_value(interpreted[0])}, "
            "which a shell or tmux would interpret; write a path without it"
        )
    return value


def _name(value: str) -> str:
    if not NAME.fullmatch(value) or value.endswith((".", ".lock")) or ".." in value:
        raise ValueError(
            f"{units.quote_value(value)} is no name; accepted: letters, digits, '.', '_' and '-', no leading '-'"
        )
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{units.quote_value(value)} is no regular expression: {error}") from None
    return value


def _database(value: str) -> str:
    if value == "sqlite" or value.startswith(("postgresql://", "postgres://", "${keyring:")):
        return value
    # Not quoted: the address may contain a password.
    raise ValueError("this is no database; accepted: sqlite, or postgresql://user:password@host/name")


def _one_of(accepted: tuple[str, ...]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, str) and value in accepted:
            return value
        match = nearest(value, accepted) if isinstance(value, str) else None
        hint = f'did you mean "{match}"? ' if match else ""
        raise ValueError(f"{units.quote_value(value)} is not accepted; {hint}accepted: {', '.join(accepted)}")

    return BeforeValidator(check)


def check_trigger(value: str) -> str:
    """Check a trigger's name. A name that is close to a known one is refused as a typing error."""
    if value in TRIGGERS:
        return value
    if not re.fullmatch(r"[a-z][a-z0-9._-]*", value):
        raise ValueError(
            f"{units.quote_value(value)} is no trigger; accepted: {', '.join(TRIGGERS)}, or an event's type"
        )
    if "." not in value and (match := nearest(value, TRIGGERS, 0.85)):
        raise ValueError(f'{units.quote_value(value)} is no trigger; did you mean "{match}"?')
    return value


def _template(variables: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        check_template(value, variables)
        return value

    return AfterValidator(check)


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(f"{units.quote_value(value)} is no name of an environment variable")
    return value


def _condition(value: str) -> str:
    if value.strip():
        check_condition(value, TEMPLATE_VARIABLES)
    return value.strip()


def _unit(parse: Any, example: str) -> tuple[Any, ...]:
    schema = {"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}], "examples": [example]}
    return BeforeValidator(parse), WithJsonSchema(schema)


Text = Annotated[str, BeforeValidator(_text)]
Database = Annotated[Text, AfterValidator(_database)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]
Inside = Annotated[Text, AfterValidator(_inside)]
PlainPath = Annotated[Text, AfterValidator(_plain_path)]
Insides = Annotated[tuple[Inside, ...], BeforeValidator(_texts)]
Folders = Annotated[tuple[Annotated[Text, AfterValidator(_folder)], ...], BeforeValidator(_texts)]
Name = Annotated[Text, AfterValidator(_name)]
Pattern = Annotated[Text, AfterValidator(_pattern)]
Duration = Annotated[float, *_unit(units.parse_duration, "30m")]
Size = Annotated[int, *_unit(units.parse_size, "4g")]
Money = Annotated[units.Amount, *_unit(units.parse_amount, "5 USD"), PlainSerializer(str)]
Pause = Annotated[units.Backoff, *_unit(units.parse_backoff, "30s..10m"), PlainSerializer(str)]
Escalation = Annotated[units.EscalateAfter, *_unit(units.parse_escalate_after, "30m"), PlainSerializer(str)]
QuietHours = Annotated[
    units.QuietPeriod,
    BeforeValidator(units.parse_quiet_hours),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["22:00..07:00", "22:00..07:00 Europe/Berlin"]},
                {
                    "type": "object",
                    "properties": {
                        "hours": {"type": "string"},
                        "timeZone": {"type": "string"},
                        "urgent": {"type": "boolean"},
                    },
                    "required": ["hours"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
    PlainSerializer(str),
]
Rate = Annotated[
    units.Rate,
    BeforeValidator(units.parse_rate),
    WithJsonSchema({"type": "string", "examples": ["20/10m"]}),
    PlainSerializer(str),
]
Environment = dict[Annotated[str, AfterValidator(_variable)], Text]
Message = Annotated[Text, _template(tuple(TEMPLATE_VARIABLES))]
Argument = Annotated[Text, _template(AGENT_VARIABLES)]
BranchPattern = Annotated[Text, _template(BRANCH_VARIABLES)]
Condition = Annotated[Text, AfterValidator(_condition)]
Trigger = Annotated[Text, AfterValidator(check_trigger)]
Permissions = Annotated[
    Literal["default", "plan", "auto-edit", "full"], _one_of(("default", "plan", "auto-edit", "full"))
]
Mode = Annotated[Literal["tui", "headless"], _one_of(("tui", "headless"))]
Sandbox = Annotated[Literal["none", "bwrap"], _one_of(("none", "bwrap"))]
Engine = Annotated[Literal["auto", "docker", "podman"], _one_of(("auto", "docker", "podman"))]
Network = Annotated[Literal["none", "allowlist", "host"], _one_of(("none", "allowlist", "host"))]
Role = Annotated[Literal["worker", "reviewer"], _one_of(("worker", "reviewer"))]
Approval = Annotated[Literal["person", "agent"], _one_of(("person", "agent"))]
Extra = Annotated[Literal["merge", "review", "answer", "edit"], _one_of(("merge", "review", "answer", "edit"))]
Extras = Annotated[tuple[Extra, ...], BeforeValidator(_texts)]
Conversation = Annotated[Literal["continue", "new"], _one_of(("continue", "new"))]
RedBase = Annotated[Literal["allow-known", "forbid"], _one_of(("allow-known", "forbid"))]
CheckOn = Annotated[Literal["done", "commit", "manual"], _one_of(("done", "commit", "manual"))]
PromptBy = Annotated[Literal["argument", "file", "stdin", "paste"], _one_of(("argument", "file", "stdin", "paste"))]
Action = Annotated[str, _one_of(ACTIONS), WithJsonSchema({"enum": [*ACTIONS, "auto-merge"]})]
Priority = Annotated[str, _one_of(PRIORITIES), WithJsonSchema({"enum": list(PRIORITIES)})]
Strategy = Annotated[str, _one_of(MERGE_STRATEGIES), WithJsonSchema({"enum": list(MERGE_STRATEGIES)})]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=0, le=units.MAX_COUNT)]
Positive = Annotated[int, Field(ge=1, le=units.MAX_COUNT)]
Cpus = Annotated[float, Field(ge=0, le=units.MAX_COUNT)]
