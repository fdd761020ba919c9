"""Output generated from the configuration's models: JSON Schema, help for the terminal, the reference page."""

from __future__ import annotations

import contextlib
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent_orchestrator import __version__
from agent_orchestrator.config import model as models
from agent_orchestrator.config import units
from agent_orchestrator.config.model import DAEMON_KEYS, Config
from agent_orchestrator.config.trust import trust_table
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import TEMPLATE_VARIABLES, Rule

_SHORTHANDS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("Project", "ci"): [{"type": "string"}, {"$ref": "#/$defs/Check"}],
    ("Project", "tracker"): [{"type": "string"}],
    ("Project", "scm"): [{"type": "string"}],
    ("Project", "terminal"): [{"type": "string"}],
    ("Defaults", "tracker"): [{"type": "string"}],
    ("Defaults", "scm"): [{"type": "string"}],
    ("Defaults", "terminal"): [{"type": "string"}],
    ("Profile", "command"): [{"type": "string"}],
    ("Profile", "resume"): [{"type": "string"}],
}
"""Short forms that editors should complete, in addition to the full form."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, in its canonical spelling."""
    schema = Config.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "agent-orchestrator.yaml"
    schema["properties"] = {"$schema": {"type": "string"}, **schema["properties"]}
    for (name, key), forms in _SHORTHANDS.items():
        properties = schema["$defs"][name]["properties"]
        full = properties[key]
        properties[key] = {"anyOf": [full, *forms], **_pop_annotations(full)}
    for properties in (part.get("properties", {}) for part in (schema, *schema["$defs"].values())):
        for entry in properties.values():
            _allow_single_text(entry)
    return schema


def update_schema_file(file: Path) -> None:
    """Write the schema file that editors use, unless it has this version's content."""
    mark = {"$comment": f"agent-orchestrator {__version__}"}
    try:
        if file.read_text(encoding="utf-8").startswith(json.dumps(mark)[:-1]):
            return
    except (OSError, ValueError):
        pass
    with contextlib.suppress(OSError):  # completion in an editor is not worth an error
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(mark | json_schema()), encoding="utf-8")
        draft.replace(file)


def _allow_single_text(entry: dict[str, Any]) -> None:
    """Allow one text in place of a list of texts, in a property of the schema."""
    if entry.get("type") == "array" and entry.get("items", {}).get("type") == "string":
        annotations = _pop_annotations(entry)
        full = dict(entry)
        entry.clear()
        entry.update({"anyOf": [full, {"type": "string"}], **annotations})


def _pop_annotations(entry: dict[str, Any]) -> dict[str, Any]:
    """Remove what describes a key, whatever form its value has, from one form's schema, and return it."""
    annotations: tuple[str, ...] = ("description", "default", "title")
    return {annotation: entry.pop(annotation) for annotation in annotations if annotation in entry}


@dataclass(frozen=True, slots=True)
class Key:
    """One key as the help and the reference page show it."""

    path: str
    kind: str
    default: str
    description: str
    section: str
    """The model that it belongs to."""


def list_keys() -> list[Key]:
    """Return every key, in the order of the models, with its path (`projects.<id>.ci.<name>.timeout`)."""
    return list(_keys(Config, ""))


def help_text() -> str:
    """Return every key with its default and description, for a terminal."""
    lines = ["agent-orchestrator.yaml: every key, its default, and what it does.", ""]
    previous_path = ""
    for key in list_keys():
        indent = "  " * key.path.count(".")
        holder, _, name = key.path.rpartition(".")
        if holder.endswith(">") and not previous_path.startswith(f"{holder}."):
            lines.append(f"{indent[2:]}{holder.rpartition('.')[2]}")
        previous_path = key.path
        default = f" = {key.default}" if key.default else ""
        lines.append(f"{indent + name + default:<44} {key.description}")
    lines += ["", "Keys may be written in snake_case; ${NAME} comes from the environment, $${ is a literal ${."]
    return "\n".join(lines) + "\n"


def reference_markdown() -> str:
    """Return the reference page of the configuration."""
    parts = [_INTRODUCTION]
    printed: set[str] = set()
    for section in [key.section for key in list_keys()]:
        if section not in printed:
            printed.add(section)
            parts.append(_section(section))
    parts.append(_reactions())
    parts.append(f"{_TRUST}\n{trust_table()}")
    return "\n".join(parts)


# -- inside ------------------------------------------------------------------------------------------------------------


def _keys(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in _ordered(model):
        path = f"{prefix}{field.alias or name}"
        inner, holder = _inner(field.annotation)
        kind = _kind(field)
        yield Key(path, kind, _default(field), field.description or "", model.__name__)
        if inner and not (model is not Config and inner is models.Reaction) and inner is not models.Project:
            yield from _keys(inner, f"{path}.<{holder}>." if holder else f"{path}.")
        elif inner is models.Project and holder:
            yield from _keys(inner, f"{path}.<{holder}>.")


def _ordered(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Return a model's fields: its own before those it shares with another."""
    inherited = models.Defaults.model_fields if model is models.Project else {}
    fields = model.model_fields.items()
    return [item for item in fields if item[0] not in inherited] + [item for item in fields if item[0] in inherited]


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the model inside an annotation, and how its container is indexed: "name" for a map, "n" for a list, else ""."""
    bare = _bare(annotation)
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return bare, ""
    arguments = typing.get_args(bare)
    if typing.get_origin(bare) is dict:
        inner, _ = _inner(arguments[1])
        return inner, "name"
    if typing.get_origin(bare) is tuple:
        inner, _ = _inner(arguments[0])
        return inner, "n"
    return None, ""


def _bare(annotation: Any) -> Any:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _bare(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return _bare(next(argument for argument in typing.get_args(annotation) if argument is not type(None)))
    return annotation


_UNITS: dict[Any, str] = {
    units.parse_duration: "duration",
    units.parse_size: "size",
    units.parse_amount: "amount",
    units.parse_backoff: "duration..duration",
    units.parse_escalate_after: "count or duration",
    units.parse_quiet_hours: "time..time",
}


def _kind(field: FieldInfo) -> str:
    """Return a field's type in words for people."""
    for note in (*field.metadata, *_annotation_metadata(field.annotation)):
        if (unit := _UNITS.get(getattr(note, "func", None))) is not None:
            return unit
        options = getattr(note, "json_schema", None)
        if isinstance(options, dict) and "enum" in options:
            return ", ".join(options["enum"])
    return _type_name(_bare(field.annotation))


def _annotation_metadata(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of the type inside `X | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(note for argument in typing.get_args(annotation) for note in _annotation_metadata(argument))
    return annotation.__metadata__ if typing.get_origin(annotation) is typing.Annotated else ()


def _type_name(bare: Any) -> str:
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin is typing.Literal:
        return ", ".join(arguments)
    if origin is tuple:
        return f"list of {_type_name(_bare(arguments[0]))}s"
    if origin is dict:
        return "map" if arguments[1] is Any else f"map of {_type_name(_bare(arguments[1]))}s"
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return "section"
    return {str: "text", int: "number", float: "number", bool: "true or false"}.get(bare, "anything")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required() or value in (None, "", (), {}) or isinstance(value, BaseModel) or is_dataclass(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    kind = _kind(field)
    if kind == "duration":
        return units.format_duration(value)
    return f"{value >> 30}g" if kind == "size" else str(value)


def _section(name: str) -> str:
    model: type[BaseModel] = getattr(models, name)
    places = dict.fromkeys(key.path.rpartition(".")[0] for key in list_keys() if key.section == name)
    title = " · ".join(f"`{place}`" for place in places if place) or "The file"
    lines = [f"## {title}", "", (model.__doc__ or "").strip(), "", "| key | value | default | |", "|---|---|---|---|"]
    for field_name, field in _ordered(model):
        default = f"`{_default(field)}`" if _default(field) else ""
        lines.append(f"| `{field.alias or field_name}` | {_kind(field)} | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _reactions() -> str:
    lines = ["## Reactions that are in force by themselves", "", "| trigger | default |", "|---|---|"]
    lines += [f"| `{rule.trigger}` | {_describe_rule(rule)} |" for rule in DEFAULT_RULES]
    lines += ["", "Templates and conditions may speak of:", "", "| variable | |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in TEMPLATE_VARIABLES.items()]
    return "\n".join(lines) + "\n"


def _describe_rule(rule: Rule) -> str:
    parts = [rule.action if rule.auto else f"auto false, {rule.action}"]
    parts += [f"{rule.strategy}"] if rule.strategy else []
    parts += ["deleteAfter"] if rule.delete_after else []
    parts += [f"retries {rule.retries}"] if rule.retries is not None else []
    parts += (
        [f"backoff {units.format_duration(rule.backoff[0])}..{units.format_duration(rule.backoff[1])}"]
        if rule.backoff
        else []
    )
    parts += [f"escalateAfter {rule.escalate_after_count}"] if rule.escalate_after_count is not None else []
    parts += (
        [f"escalateAfter {units.format_duration(rule.escalate_after_seconds)}"] if rule.escalate_after_seconds else []
    )
    parts += [f"threshold {units.format_duration(rule.threshold)}"] if rule.threshold else []
    parts += [f"delay {units.format_duration(rule.delay)}"] if rule.delay else []
    parts += ["unless watched"] if rule.unless_watched else []
    parts += [f"priority {rule.priority}"] if rule.priority else []
    parts += ["with a summary"] if rule.include_summary else []
    return ", ".join(parts)


_INTRODUCTION = f"""\
# Configuration

<!-- Generated from the models (config/schema.py, reference_markdown); a test keeps it current. -->

`agent-orchestrator.yaml` is found by `$AO_CONFIG`, then upwards from the working directory as far as the home folder, then
as `$AO_HOME/config.yaml`. `ao init` writes a first one, `ao config validate` checks one, `ao config set KEY VALUE` changes
one and keeps its comments, `ao config schema` prints its JSON Schema.

- **Spelling.** Keys are camelCase; snake_case is accepted. An unknown key or a wrong value is an error that names file,
  line, key and the nearest valid key. All errors of a file are told at once, the first line is the main one.
- **Units.** Durations: `30s`, `10m`, `1h30m`, `2d`, or seconds. Sizes: `512m`, `4g`, or bytes. Amounts: `5 USD`, or
  `2M tokens`. A pause: `30s..10m`.
- **Environment.** `${{NAME}}` and `${{NAME:-default}}` expand from the environment, `${{keyring:NAME}}` from the system's
  keyring (`ao secret set NAME`, see [secrets](../secrets.md)); `$${{` is a literal `${{`. A variable that
  is not set leaves an option of a plugin (`notifiers`, `tracker`, `scm`, `terminal`, `cluster`) or an `env` entry out, with a
  warning; anywhere else it is an error.
- **Paths** of projects and plugins are relative to the file; `worktreeDir` and `agentRulesFile` to the repository.
- **Scope.** Several files may be in force at once, each for its own projects. `$AO_HOME/config.yaml` speaks for all of them,
  a project's file over it, the project's own entry over both, field by field.
  {", ".join(f"`{key}`" for key in DAEMON_KEYS)} count only in `$AO_HOME/config.yaml` or in the file the daemon was started
  with. A file without `projects` is about the repository in which it lies: keys of a project may then stand at its top.
  A project's id belongs to one file. A changed file takes effect at once; a broken one leaves the last good one in force.
  Where a daemon that starts finds it broken, nothing starts or lands in its projects until it is right.
- **Warnings** of a file are said once, by the first command in its folder, and again when it changes or the daemon is started;
  `ao start`, `ao doctor` and `ao config validate` say them whenever they are asked.
- **Workspaces.** A file inside a session's workspace is never read.
- **Trust.** A file that came with the repository runs, opens and decides nothing before `ao trust`: see
  [what needs trust](#what-needs-trust).
- **Short forms.** `ci: make test` is one check named `default`; `tracker: github` is `tracker: {{plugin: github}}`; one text may
  stand for a list of one; a profile with `command` needs no `tool`; `reactions` may be a list of rules with `trigger`.
"""

_TRUST = """
## What needs trust

What you wrote and Git does not track is yours, and stays so when you commit it. So is what `ao init` made, but for the commands that
it detected (`postCreate`, `ci`, `commands`): they wait until you agree to them, or change them. A file that Git tracks came
with the repository: the keys below are not in force before `ao trust`, which shows what they say. Trust holds for that, and for
the content of the code that is named (`plugins`, `dockerfile`): whatever a pull, a landing or an agent changes in it is asked
about again. Code that Git tracks is asked about when it changes even if the configuration is yours. Meanwhile running sessions go
on, and what would start waits. All other keys are in force at once.

What `ao import` writes is yours too: what of it came with a repository is shown and asked about before it is written.

A file that belongs to another user of the machine, or that everybody may write, is refused altogether.
"""
