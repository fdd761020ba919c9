"""Changing a file without losing the user's comments, and writing the first one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.tokens import CommentToken
from ruamel.yaml.util import load_yaml_guess_indent

from agent_orchestrator.config.detection.repository import Detected
from agent_orchestrator.config.load import keys_at, load_text, model_at, read
from agent_orchestrator.config.problems import did_you_mean
from agent_orchestrator.errors import ConfigError, Denied, UsageError


def get_value(path: Path, key: str, environ: Mapping[str, str]) -> Any:
    """What a file says under a dotted key, as written there; else the default."""
    steps = split_key(key)
    text = read(path)
    loaded = load_text(text, path, environ)
    document = YAML(typ="safe", pure=True).load(text) or {}
    found, value = _look(document, steps)
    if found:
        return value
    found, value = _look(loaded.config.model_dump(mode="json", by_alias=True), steps)
    if not found:
        raise _unknown(key, steps)
    return value


def set_value(path: Path, key: str, value: str, environ: Mapping[str, str], within: Path | None = None) -> None:
    """Set a dotted key to a value written as YAML. The result is checked first, and written as a whole or not at all.

    `within`: the folder that no symlink may lead out of.
    """
    steps = split_key(key)
    text = read(path) if path.exists() else ""
    changed = changed_text(text, path, lambda document: _set(document, steps, _value(value)))
    load_text(changed, path, environ)
    write_atomically(path, changed, within)


def split_key(key: str) -> list[str]:
    """The steps of a dotted key; a step with dots in it is written in quotes."""
    steps = [quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|([^."]+)', key)]
    if not steps:
        raise UsageError(f'"{key}" is no key', "write for example defaults.runtime")
    return steps


def write_atomically(path: Path, text: str, within: Path | None = None) -> None:
    """Replace a file's content in one step; a symlink stays one, and so do the permissions.

    `within`: the folder that no symlink may lead out of, nor into Git's own there. Without one a new file is the user's alone: it may
    hold tokens, and stand in a home that others may enter.
    """
    target = path.resolve()
    if within is not None:
        _refuse_out_of(within.resolve(), path, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644 if within else 0o600)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def _refuse_out_of(folder: Path, path: Path, target: Path) -> None:
    inside = target.parts[len(folder.parts) :] if target.is_relative_to(folder) else (".git",)
    if any(part.casefold() == ".git" for part in inside):
        raise Denied(
            f"{path} leads to {target}, out of {folder}: nothing is written there",
            "change that file itself, or put a file in the link's place",
        )


def initial(
    project_id: str,
    found: Detected,
    agent: str | None = None,
    session_prefix: str | None = None,
    schema: Path | None = None,
) -> str:
    """The text of a new file for the repository in which it is to lie; `schema`: what editors complete its keys by."""
    lines = [f"# yaml-language-server: $schema={schema.as_uri()}"] if schema else []
    lines += [
        "# Agent Orchestrator. All keys: ao config-help",
        "",
        "defaults:",
        f"  agent: {_quoted(agent)}" if agent else "  agent: claude-code",
        "  # runtime: auto            # tmux where it is installed, else process",
        "  # agentConfig:",
        "  #   permissions: auto-edit # default, plan, auto-edit or full",
        "",
        "projects:",
        f"  {_quoted(project_id)}:",
        "    path: .",
    ]
    lines += _repo(found)
    if found.default_branch:
        lines.append(f"    defaultBranch: {_quoted(found.default_branch)}")
    if session_prefix:
        lines.append(f"    sessionPrefix: {_quoted(session_prefix)}")
    lines += _checks(found)
    if found.commands:
        lines.append(
            f"    commands: [{', '.join(map(_quoted, found.commands))}]   # agents may run these without asking"
        )
    lines.append("    # copy: [.env]             # into each workspace")
    if found.set_up:
        lines.append(f"    postCreate: [{', '.join(map(_quoted, found.set_up))}]   # run in a new workspace")
    else:
        lines.append("    # postCreate: [npm ci]     # run in a new workspace")
    lines += [
        "",
        "# reactions:",
        "#   ci-failed: {retries: 3}",
        "#   approved-and-green: {auto: true}   # merge without asking",
    ]
    return "\n".join(lines) + "\n"


def _checks(found: Detected) -> list[str]:
    """What is run when an agent is done: the tests, and the project's own lint command as a check of its own."""
    if found.test_command is None:
        return ["    # ci: {command: make test}   # local checks, run when an agent is done"]
    if found.lint is None:
        return ["    ci:", f"      command: {_quoted(found.test_command)}"]
    return [
        "    ci:",
        f"      test: {{command: {_quoted(found.test_command)}}}",
        f"      lint: {{command: {_quoted(found.lint)}}}",
    ]


def _repo(found: Detected) -> list[str]:
    """Where the repository is: what its host's name does not tell is left to a person, for a token would be sent there. That of an
    enterprise's GitHub is for whichever host is called so, and anybody may call his own github.
    """
    host, name = found.forge or "", found.remote or ""
    if not host or not name:
        return []
    if host in ("github.com", "ssh.github.com") and name.count("/") == 1:
        return [f"    repo: {_quoted(name)}"]
    address = _quoted(f"{host}/{name}")
    if "." in host and ("gitlab" in host or host.endswith(".ghe.com")):
        return [f"    repo: {address}"]
    return [f"    # repo: {address}   # and scm: {{plugin: github}} or {{plugin: gitlab}}: pull requests are there"]


def changed_text(text: str, path: Path, change: Callable[[Any], None]) -> str:
    """A file's text after a change to its document, comments kept."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    try:
        document = yaml.load(text) if text.strip() else None
        indent, offset = _indentation(text) if document is not None else (None, None)
    except _NOT_YAML:
        load_text(text, path, {})
        raise ConfigError(f"{path} is not valid YAML", "correct it first") from None
    if document is None:
        document = CommentedMap()
        text = text if not text.strip() or text.endswith("\n") else text + "\n"
    else:
        text = ""
    if not isinstance(document, CommentedMap):
        raise ConfigError(f"{path} is not a mapping of keys", "correct it first")
    if indent:
        yaml.indent(mapping=2, sequence=max(indent, (offset or 0) + 2) if offset else 2, offset=offset or 0)
    change(document)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return text + stream.getvalue()


_NOT_YAML = (YAMLError, ValueError, LookupError, AttributeError, TypeError, AssertionError, RecursionError)
"""How the library gives up on a malformed document."""


def _indentation(text: str) -> tuple[int | None, int | None]:
    """How far lists are indented; nothing where that cannot be told."""
    try:
        _, indent, offset = load_yaml_guess_indent(text)
    except _NOT_YAML:
        return None, None
    return indent, offset


def _set(document: Any, steps: list[str], value: Any) -> None:
    current = document
    for position, step in enumerate(steps):
        last = position == len(steps) - 1
        if isinstance(current, CommentedSeq):
            if not step.isdecimal() or int(step) >= len(current):
                raise UsageError(
                    f'"{".".join(steps[: position + 1])}" is not in the file', f"it has {len(current)} items"
                )
            place: Any = int(step)
        elif isinstance(current, CommentedMap):
            place = spelled(current, step)
        else:
            raise UsageError(f'"{".".join(steps[:position])}" has a plain value', "set that key itself")
        if last:
            _put(current, place, value)
        else:
            if isinstance(current, CommentedMap) and current.get(place) is None:
                current[place] = CommentedMap()
            current = current[place]


def _put(owner: Any, place: Any, value: Any) -> None:
    """Set a value; the comment behind the one that it replaces is mostly about what comes next, and stays."""
    known = isinstance(owner, CommentedSeq) or place in owner
    behind = _behind(owner[place]) if known else ""
    owner[place] = value
    if behind:
        slot = 0 if isinstance(owner, CommentedSeq) else 2
        own = owner.ca.items.setdefault(place, [None, None, None, None])
        said = own[slot].value.rstrip("\n") if own[slot] else ""
        own[slot] = CommentToken(f"{said}\n{behind}", CommentMark(0))


def _behind(value: Any) -> str:
    """The lines of comment that the file has after the last thing in a list or mapping."""
    while isinstance(value, CommentedMap | CommentedSeq) and value:
        place = next(reversed(value)) if isinstance(value, CommentedMap) else len(value) - 1
        if said := value.ca.items.get(place, [None] * 3)[2 if isinstance(value, CommentedMap) else 0]:
            return str(said.value.partition("\n")[2])
        value = value[place]
    return ""


def _look(document: Any, steps: list[str]) -> tuple[bool, Any]:
    current = document
    for step in steps:
        if isinstance(current, Mapping):
            place = spelled(current, step)
            if place not in current:
                return False, None
            current = current[place]
        elif isinstance(current, list) and step.isdecimal() and int(step) < len(current):
            current = current[int(step)]
        else:
            return False, None
    return True, current


def spelled(mapping: Mapping[Any, Any], step: str) -> Any:
    """The key as the file spells it: camelCase and snake_case are the same."""
    folded = step.replace("_", "").lower()
    if step in mapping:
        return step
    return next((k for k in mapping if isinstance(k, str) and k.replace("_", "").lower() == folded), step)


def _unknown(key: str, steps: list[str]) -> UsageError:
    for end in range(len(steps)):
        if model_at(steps[:end]) and steps[end] not in keys_at(steps[:end]):
            return UsageError(
                f'unknown key "{".".join(steps[: end + 1])}"', did_you_mean(steps[end], keys_at(steps[:end]))
            )
    return UsageError(f'"{key}" is not set')


def _value(text: str) -> Any:
    """A value from the command line: YAML, or the text itself where it is none."""
    try:
        return YAML().load(text)
    except _NOT_YAML:
        return text


def _quoted(text: str | None) -> str:
    """A text as a YAML value, in which nothing is filled in from the environment: plain where that is safe."""
    value = (text or "").replace("${", "$${")
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*", value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
