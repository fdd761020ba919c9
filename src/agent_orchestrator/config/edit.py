"""Edit a configuration file and keep the user's comments, and write a first file."""

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

from agent_orchestrator.config.detection.repository import RepositoryInfo
from agent_orchestrator.config.load import keys_at, load_text, model_at, read_config_text
from agent_orchestrator.config.problems import did_you_mean
from agent_orchestrator.errors import ConfigError, Denied, UsageError


def get_value(path: Path, key: str, environ: Mapping[str, str]) -> Any:
    """Return the value of a dotted key as the file has it, or the default. Raises `UsageError` for an unknown key."""
    steps = split_key(key)
    text = read_config_text(path)
    loaded = load_text(text, path, environ)
    document = YAML(typ="safe", pure=True).load(text) or {}
    exists, value = _find_value(document, steps)
    if exists:
        return value
    exists, value = _find_value(loaded.config.model_dump(mode="json", by_alias=True), steps)
    if not exists:
        raise _unknown_key(key, steps)
    return value


def set_value(path: Path, key: str, value: str, environ: Mapping[str, str], within: Path | None = None) -> None:
    """Set a dotted key to a value written as YAML.

    The result is checked first, and written completely or not at all. `within`: the folder that no symlink may leave.
    """
    steps = split_key(key)
    text = read_config_text(path) if path.exists() else ""
    changed = edit_text(text, path, lambda document: _set(document, steps, _parse_value(value)))
    load_text(changed, path, environ)
    write_atomically(path, changed, within)


def split_key(key: str) -> list[str]:
    """Split a dotted key into its steps. A step that contains dots is quoted."""
    steps = [quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|([^."]+)', key)]
    if not steps:
        raise UsageError(f'"{key}" is no key', "write for example defaults.runtime")
    return steps


def write_atomically(path: Path, text: str, within: Path | None = None) -> None:
    """Replace a file's content in one step.

    A symlink stays a symlink, and permissions are kept. `within`: the folder that no symlink may leave, and into whose
    `.git` none may lead. Without it a new file is readable only by the user: it may hold tokens, in a home that others
    may enter.
    """
    target = path.resolve()
    if within is not None:
        _refuse_symlink_escape(within.resolve(), path, target)
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


def _refuse_symlink_escape(folder: Path, path: Path, target: Path) -> None:
    """Raise `Denied` if a symlink leads out of the folder, or into `.git`."""
    inside = target.parts[len(folder.parts) :] if target.is_relative_to(folder) else (".git",)
    if any(part.casefold() == ".git" for part in inside):
        raise Denied(
            f"{path} leads to {target}, out of {folder}: nothing is written there",
            "change that file itself, or put a file in the link's place",
        )


def initial_text(
    project_id: str,
    detected: RepositoryInfo,
    agent: str | None = None,
    session_prefix: str | None = None,
    schema: Path | None = None,
) -> str:
    """Return the text of a new file for a repository. `schema`: the JSON Schema that editors complete keys by."""
    lines = [f"# yaml-language-server: $schema={schema.as_uri()}"] if schema else []
    lines += [
        "# Agent Orchestrator. All keys: ao config-help",
        "",
        "defaults:",
        f"  agent: {_quote_yaml(agent)}" if agent else "  agent: claude-code",
        "  # runtime: auto            # tmux where it is installed, else process",
        "  # agentConfig:",
        "  #   permissions: auto-edit # default, plan, auto-edit or full",
        "",
        "projects:",
        f"  {_quote_yaml(project_id)}:",
        "    path: .",
    ]
    lines += _repo(detected)
    if detected.default_branch:
        lines.append(f"    defaultBranch: {_quote_yaml(detected.default_branch)}")
    if session_prefix:
        lines.append(f"    sessionPrefix: {_quote_yaml(session_prefix)}")
    lines += _checks(detected)
    if detected.commands:
        lines.append(
            f"    commands: [{', '.join(map(_quote_yaml, detected.commands))}]   # agents may run these without asking"
        )
    lines.append("    # copy: [.env]             # into each workspace")
    if detected.set_up:
        lines.append(f"    postCreate: [{', '.join(map(_quote_yaml, detected.set_up))}]   # run in a new workspace")
    else:
        lines.append("    # postCreate: [npm ci]     # run in a new workspace")
    lines += [
        "",
        "# reactions:",
        "#   ci-failed: {retries: 3}",
        "#   approved-and-green: {auto: true}   # merge without asking",
    ]
    return "\n".join(lines) + "\n"


def _checks(detected: RepositoryInfo) -> list[str]:
    """Return the lines with the checks: the tests, and the project's lint command as a separate check."""
    if detected.test_command is None:
        return ["    # ci: {command: make test}   # local checks, run when an agent is done"]
    if detected.lint is None:
        return ["    ci:", f"      command: {_quote_yaml(detected.test_command)}"]
    return [
        "    ci:",
        f"      test: {{command: {_quote_yaml(detected.test_command)}}}",
        f"      lint: {{command: {_quote_yaml(detected.lint)}}}",
    ]


def _repo(detected: RepositoryInfo) -> list[str]:
    """Return the line with the repository's address.

    It is commented out where the host's name does not say which forge it is, because a token would be sent there. A GitHub Enterprise
    token is for any host with such a name, and anyone can name their own host github.
    """
    host, name = detected.forge or "", detected.remote or ""
    if not host or not name:
        return []
    if host in ("github.com", "ssh.github.com") and name.count("/") == 1:
        return [f"    repo: {_quote_yaml(name)}"]
    address = _quote_yaml(f"{host}/{name}")
    if "." in host and ("gitlab" in host or host.endswith(".ghe.com")):
        return [f"    repo: {address}"]
    return [f"    # repo: {address}   # and scm: {{plugin: github}} or {{plugin: gitlab}}: pull requests are there"]


def edit_text(text: str, path: Path, change: Callable[[Any], None]) -> str:
    """Return a file's text after a change to its document, with comments kept."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    try:
        document = yaml.load(text) if text.strip() else None
        indent, offset = _indentation(text) if document is not None else (None, None)
    except _YAML_ERRORS:
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


_YAML_ERRORS = (YAMLError, ValueError, LookupError, AttributeError, TypeError, AssertionError, RecursionError)
"""The errors by which the library rejects a malformed document."""


def _indentation(text: str) -> tuple[int | None, int | None]:
    """Return how far lists are indented, or (None, None) if that is unclear."""
    try:
        _, indent, offset = load_yaml_guess_indent(text)
    except _YAML_ERRORS:
        return None, None
    return indent, offset


def _set(document: Any, steps: list[str], value: Any) -> None:
    """Set a value at the steps of a key; sections on the way are created."""
    current = document
    for position, step in enumerate(steps):
        is_last = position == len(steps) - 1
        if isinstance(current, CommentedSeq):
            if not step.isdecimal() or int(step) >= len(current):
                raise UsageError(
                    f'"{".".join(steps[: position + 1])}" is not in the file', f"it has {len(current)} items"
                )
            key: Any = int(step)
        elif isinstance(current, CommentedMap):
            key = key_in_file(current, step)
        else:
            raise UsageError(f'"{".".join(steps[:position])}" has a plain value', "set that key itself")
        if is_last:
            _set_and_keep_comment(current, key, value)
        else:
            if isinstance(current, CommentedMap) and current.get(key) is None:
                current[key] = CommentedMap()
            current = current[key]


def _set_and_keep_comment(owner: Any, key: Any, value: Any) -> None:
    """Set a value. A comment after the replaced value is kept: it is mostly about what comes next."""
    exists = isinstance(owner, CommentedSeq) or key in owner
    trailing_comment = _trailing_comment(owner[key]) if exists else ""
    owner[key] = value
    if trailing_comment:
        slot = 0 if isinstance(owner, CommentedSeq) else 2
        tokens = owner.ca.items.setdefault(key, [None, None, None, None])
        own_comment = tokens[slot].value.rstrip("\n") if tokens[slot] else ""
        tokens[slot] = CommentToken(f"{own_comment}\n{trailing_comment}", CommentMark(0))


def _trailing_comment(value: Any) -> str:
    """Return the comment lines that the file has after the last entry of a list or mapping."""
    while isinstance(value, CommentedMap | CommentedSeq) and value:
        key = next(reversed(value)) if isinstance(value, CommentedMap) else len(value) - 1
        if token := value.ca.items.get(key, [None] * 3)[2 if isinstance(value, CommentedMap) else 0]:
            return str(token.value.partition("\n")[2])
        value = value[key]
    return ""


def _find_value(document: Any, steps: list[str]) -> tuple[bool, Any]:
    """Return whether there is a value at the steps of a key, and the value."""
    current = document
    for step in steps:
        if isinstance(current, Mapping):
            key = key_in_file(current, step)
            if key not in current:
                return False, None
            current = current[key]
        elif isinstance(current, list) and step.isdecimal() and int(step) < len(current):
            current = current[int(step)]
        else:
            return False, None
    return True, current


def key_in_file(mapping: Mapping[Any, Any], step: str) -> Any:
    """Return the key as the file spells it; camelCase and snake_case are equal."""
    folded = step.replace("_", "").lower()
    if step in mapping:
        return step
    return next((key for key in mapping if isinstance(key, str) and key.replace("_", "").lower() == folded), step)


def _unknown_key(key: str, steps: list[str]) -> UsageError:
    """Return the error for a key that is not accepted, or is not set."""
    for end in range(len(steps)):
        if model_at(steps[:end]) and steps[end] not in keys_at(steps[:end]):
            return UsageError(
                f'unknown key "{".".join(steps[: end + 1])}"', did_you_mean(steps[end], keys_at(steps[:end]))
            )
    return UsageError(f'"{key}" is not set')


def _parse_value(text: str) -> Any:
    """Parse a value from the command line as YAML, or return the text if it is not YAML."""
    try:
        return YAML().load(text)
    except _YAML_ERRORS:
        return text


def _quote_yaml(text: str | None) -> str:
    """Return a text as a YAML value in which no variables are expanded, without quotes where that is safe."""
    value = (text or "").replace("${", "$${")
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*", value) and value.lower() not in _YAML_KEYWORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


_YAML_KEYWORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
