"""The configuration: `ao config get, set, validate, schema` and `ao config-help`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, read_text


@click.group()
def config() -> None:
    """Read, change and check the configuration."""


@config.command("get")
@click.argument("key", metavar="KEY")
@json_option
def get(key: str, as_json: bool) -> None:
    """Print a key's value: `ao config get defaults.agent`."""
    answer = client().get("/api/config/value", {"key": key})
    value = answer.get("value")
    if as_json:
        out.print_json(answer)
    else:
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        print(out.clean(text) if sys.stdout.isatty() else text)


@config.command("set")
@click.argument("key", metavar="KEY")
@click.argument("value", metavar="VALUE")
def set_value(key: str, value: str) -> None:
    """Change a key in its file; comments stay. A VALUE may be JSON."""
    written = client().request("PUT", "/api/config/value", {"key": key, "value": _parse_value(value)}).json()
    print(f"{written.get('file')}: {key} = {json.dumps(written.get('value'), ensure_ascii=False)}")


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@config.command("validate")
@click.argument("file", metavar="[FILE]", required=False)
@json_option
def validate(file: str | None, as_json: bool) -> int:
    """Check a configuration file; without FILE the one in force here. The projects' paths need not exist."""
    body: dict[str, Any] = {}
    if file is not None:
        body = {"path": "<stdin>" if file == "-" else os.path.abspath(file), "text": read_text(file)}
    answer = client().post("/api/config/validate", body)
    if as_json:
        out.print_json(answer)
        return 0 if answer["valid"] else 1
    for problem in answer.get("errors") or ():
        print(f"error: {_problem_text(problem)}")
    for problem in answer.get("warnings") or ():
        print(f"warning: {_problem_text(problem)}")
    name = file or answer.get("path") or answer.get("file") or "the configuration"
    print(f"{name} is {'valid' if answer['valid'] else 'not valid'}.")
    return 0 if answer["valid"] else 1


def _problem_text(problem: object) -> str:
    if isinstance(problem, dict):
        return out.one_line(problem.get("detail") or problem.get("message") or json.dumps(problem, ensure_ascii=False))
    return out.one_line(problem)


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    print(json.dumps(client().get("/api/config/schema"), indent=2, ensure_ascii=False))


@click.command("config-help")
def config_help() -> None:
    """Explain every key of the configuration."""
    print(client().request("GET", "/api/config/help", headers={"Accept": "text/plain"}).text.rstrip("\n"))
