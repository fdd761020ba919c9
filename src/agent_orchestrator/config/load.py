"""Read a configuration file into a checked model, or raise one error that lists everything wrong with it."""

from __future__ import annotations

import importlib.metadata
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import BaseModel, ValidationError

from agent_orchestrator.base.files.safe import UnsafePath, open_regular_file
from agent_orchestrator.config.field_types import check_trigger
from agent_orchestrator.config.model import Config, keys_of
from agent_orchestrator.config.old_spellings import normalize
from agent_orchestrator.config.problems import ConfigNotes, did_you_mean, nearest
from agent_orchestrator.config.units import quote_value
from agent_orchestrator.config.yaml_tree import SecretLookup, Section, expand_variables, locate, parse
from agent_orchestrator.errors import ConfigError, resource_shortage

CONFIG_FILE_NAMES = ("agent-orchestrator.yaml", "agent-orchestrator.yml")
MAX_CONFIG_BYTES = 1 << 18

BUILT_IN_PLUGINS: Mapping[str, tuple[str, ...]] = {
    "runtime": ("auto", "tmux", "process", "docker", "ray"),
    "workspace": ("worktree", "clone"),
    "tracker": ("auto", "local", "github", "gitlab", "linear", "jira"),
    "scm": ("auto", "local", "github", "gitlab"),
    "agent": (
        *("claude-code", "codex", "aider", "cursor", "opencode", "kimicode", "gemini", "copilot", "goose"),
        *("amp", "auggie", "crush", "droid", "qwen", "command", "demo"),
    ),
    "terminal": ("auto", "web", "tmux", "iterm2", "windows-terminal", "kitty", "wezterm", "gnome-terminal", "command"),
}
"""Names of the plugins that come with the product. Others may be installed."""
BUILT_IN_NOTIFIERS = ("desktop", "slack", "discord", "webhook", "composio", "openclaw", "apprise")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A file that was read and is valid."""

    path: Path
    config: Config
    warnings: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Names that were filled in from the environment."""
    has_unread_secrets: bool = False
    """Secrets of the keyring are still references, because the file is not trusted yet."""
    without_secrets: LoadedConfig | None = None
    """The same file before secrets of the keyring were filled in, if they were. Trust is in this form."""

    def has_key(self, key: str) -> bool:
        """Return whether the file itself sets a top-level field."""
        return key in self.config.model_fields_set


def load_file(path: Path, environ: Mapping[str, str], keyring: SecretLookup | None = None) -> LoadedConfig:
    """Read and check a file. Raises `ConfigError`, which names file, line and key of everything that is wrong.

    `keyring` looks up secrets and may ask the user to unlock it, so pass it only for trusted files.
    """
    return load_text(read_config_text(path), path, environ, keyring)


def read_config_text(path: Path) -> str:
    """Return a file's text. Raises `ConfigError` if it cannot be read or is not one of the user's files."""
    try:
        with open_regular_file(path.resolve()) as file:
            _check_owner(path, os.fstat(file.fileno()))
            content = file.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there", "write one with ao init") from None
    except UnsafePath:
        raise ConfigError(f"{path} cannot be read: it is no file", "is it a folder, a pipe or a device?") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise resource_shortage(error) or ConfigError(f"{path} cannot be read: {reason}") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_CONFIG_BYTES} bytes", "is it a configuration at all?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", "save the file as UTF-8") from None


def load_text(text: str, path: Path, environ: Mapping[str, str], keyring: SecretLookup | None = None) -> LoadedConfig:
    """Check a configuration's text as if it were in the file `path`."""
    notes = ConfigNotes(str(path))
    tree = parse(text, notes)
    notes.raise_problems()
    expand_variables(tree, environ, notes, keyring)
    normalize(tree, notes)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _add_problem(detail, tree, notes)
    except RecursionError:
        notes.add_problem(1, "", "nested too deeply")
    else:
        _check_names(config, tree, notes)
        _check_paths(config, tree, notes)
        _check_triggers(config, tree, notes)
    notes.raise_problems()
    return LoadedConfig(path, config, notes.warnings, tuple(sorted(notes.variables)), notes.has_unread_secrets)


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a file that another user of the machine could have written."""
    if os.name != "posix":
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{path} belongs to another user: nothing in it is used",
            f"if you mean it, make it yours: chown {os.geteuid()}",
        )
    if status.st_mode & 0o002:
        raise ConfigError(f"{path} can be written by everybody: nothing in it is used", f"chmod o-w {quote(str(path))}")


# -- errors ------------------------------------------------------------------------------------------------------------


def _add_problem(error: Any, tree: Section, notes: ConfigNotes) -> None:
    """Add one error of the model to `notes` as a problem with line, key and remedy."""
    path = tuple(error["loc"])
    line, key = locate(tree, path)
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        accepted_keys = keys_at(path[:-1])
        notes.add_problem(line, key, "unknown key", did_you_mean(str(path[-1]), accepted_keys))
    elif kind == "missing":
        notes.add_problem(line, key, "is missing")
    elif kind in _EXPECTED:
        may_be_env = (
            isinstance(value, str) and _EXPECTED[kind] == _MAPPING
        )  # not quoted: it may hold values of variables
        notes.add_problem(
            line, key, f"{'a text' if may_be_env else quote_value(value)} is not accepted", f"write {_EXPECTED[kind]}"
        )
    elif kind == "value_error":
        text, _, remedy = str(context.get("error", error["msg"])).partition("; ")
        notes.add_problem(line, key, text, remedy)
    elif kind in _BOUND_MESSAGES:
        notes.add_problem(
            line, key, f"{quote_value(value)} is not accepted", f"write {_BOUND_MESSAGES[kind].format(**context)}"
        )
    else:
        notes.add_problem(line, key, f"{quote_value(value)} is not accepted: {str(error['msg']).lower()}")


_MAPPING = "a mapping of keys"
_EXPECTED = {
    "string_type": "a text",
    "string_unicode": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "float_parsing": "a number",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}
_BOUND_MESSAGES = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number from {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number up to {le}",
}


def keys_at(path: Sequence[str | int]) -> tuple[str, ...]:
    """Return the keys that are accepted at a path of the model, or none if any key is."""
    model = model_at(path)
    return tuple(sorted(keys_of(model))) if model else ()


def model_at(path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the model at a path, or None if there is none."""
    current: Any = Config
    for step in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = next((info for name, info in current.model_fields.items() if step in (name, info.alias)), None)
            current = _unwrap_annotation(field.annotation) if field else None
        else:
            arguments = typing.get_args(current)
            current = (
                _unwrap_annotation(arguments[-1] if typing.get_origin(current) is dict else arguments[0])
                if arguments
                else None
            )
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _unwrap_annotation(annotation: Any) -> Any:
    """Return an annotation without its metadata and without `None`."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _unwrap_annotation(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return _unwrap_annotation(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation


# -- what only the whole file can tell ---------------------------------------------------------------------------------


def _check_names(config: Config, tree: Section, notes: ConfigNotes) -> None:
    """Report a plugin name that is not known but close to a known one, as a probable typing error."""
    if config.plugins:
        return
    holders: list[tuple[tuple[str, ...], Any]] = [(("defaults",), config.defaults)]
    holders += [(("projects", name), project) for name, project in config.projects.items()]
    holders += [(("project",), config.project)] if config.project else []
    for path, holder in holders:
        for slot in BUILT_IN_PLUGINS:
            value = getattr(holder, slot)
            name, inside = (value, ()) if isinstance(value, str) else (value.plugin, ("plugin",))
            _check_name(slot, name, (*path, slot, *inside), config, tree, notes)
    for profile_name, profile in config.agents.items():
        for slot, key in (("agent", "tool"), ("runtime", "runtime"), ("workspace", "workspace")):
            _check_name(slot, getattr(profile, key), ("agents", profile_name, key), config, tree, notes)
    _check_notifiers(config, holders, tree, notes)


def _check_notifiers(
    config: Config, holders: Sequence[tuple[tuple[str, ...], Any]], tree: Section, notes: ConfigNotes
) -> None:
    """Report a notifier name that is probably mistyped: its notifications would reach no one."""
    notifier_names = (*BUILT_IN_NOTIFIERS, *config.notifiers)
    references = [((*path, "notifiers"), holder.notifiers) for path, holder in holders]
    routed = [((), config), *((path, holder) for path, holder in holders if path != ("defaults",))]
    for path, holder in routed:
        routing = holder.notification_routing
        levels = [level for level in type(routing).model_fields if getattr(routing, level)]
        references += [((*path, "notificationRouting", level), getattr(routing, level)) for level in levels]
    for path, names in references:
        for name in names:
            match = None if name in notifier_names or "://" in name else nearest(name, notifier_names, 0.75)
            if match and not name.startswith(match):  # such as slack-team, defined in another file
                line, key = locate(tree, path)
                notes.add_problem(line, key, f'there is no notifier "{name}"', f'did you mean "{match}"?')


def _check_name(
    slot: str, name: str | None, path: tuple[str, ...], config: Config, tree: Section, notes: ConfigNotes
) -> None:
    built_in = BUILT_IN_PLUGINS[slot]
    if name is None or name in built_in or (slot == "agent" and name in config.agents):
        return
    match = nearest(name, built_in, 0.75)
    if match and name not in {
        point.name for point in importlib.metadata.entry_points(group=f"agent_orchestrator.{slot}")
    }:
        line, key = locate(tree, path)
        notes.add_problem(line, key, f'there is no {slot} "{name}"', f'did you mean "{match}"?')


def _check_triggers(config: Config, tree: Section, notes: ConfigNotes) -> None:
    """Check the triggers of rules. A rule without a trigger is named by it."""
    holders: list[tuple[tuple[str, ...], Any]] = [((), config)]
    holders += [(("projects", name), project) for name, project in config.projects.items()]
    holders += [(("agents", name), profile) for name, profile in config.agents.items()]
    holders += [(("project",), config.project)] if config.project else []
    for path, holder in holders:
        for name, reaction in holder.reactions.items():
            try:
                check_trigger(reaction.trigger or name)
            except ValueError as error:
                text, _, remedy = str(error).partition("; ")
                notes.add_problem(*locate(tree, (*path, "reactions", name)), text, remedy)


def _check_paths(config: Config, tree: Section, notes: ConfigNotes) -> None:
    if len(config.projects) > 1:
        for name, project in config.projects.items():
            if project.path is None:
                line, key = locate(tree, ("projects", name))
                notes.add_problem(line, f"{key}.path", "is missing", "say where the repository is")
    if config.projects and config.project:
        notes.add_problem(locate(tree, ("project",))[0], "project", "stands beside projects", "move it into projects")


# -- discovery ---------------------------------------------------------------------------------------------------------


def find_config_file(cwd: Path, environ: Mapping[str, str], home: Path, workspaces: Iterable[Path] = ()) -> Path | None:
    """Return the file in force for a folder: `$AO_CONFIG`, else the nearest upwards from the folder, else `config.yaml` in `home`.

    `home` is `$AO_HOME`. A file inside a session's workspace is never used: below `<home>/worktrees`, below a
    `.worktrees` folder, or below one of `workspaces`.
    """
    if configured := environ.get("AO_CONFIG"):
        path = expand_user(configured, environ)
        path = path if path.is_absolute() else cwd / path
        if not path.is_file():
            raise ConfigError(f"$AO_CONFIG names {path}, which is not a file", "correct or unset AO_CONFIG")
        return path
    forbidden = [home / "worktrees", *workspaces]
    stop = Path(environ["HOME"]) if environ.get("HOME") else None
    for folder in (cwd, *cwd.parents):
        for name in CONFIG_FILE_NAMES:
            candidate = folder / name
            if candidate.is_file() and not in_workspace(candidate, forbidden):
                return candidate
        if folder == stop:
            break
    fallback = home / "config.yaml"
    return fallback if fallback.is_file() else None


def in_workspace(path: Path, workspaces: Iterable[Path]) -> bool:
    """Return whether a file lies inside a session's workspace, by its path or with symlinks resolved."""
    forms = (path.absolute(), path.resolve())
    if any(".worktrees" in form.parent.parts for form in forms):
        return True
    folders = [folder for workspace in workspaces for folder in (workspace.absolute(), workspace.resolve())]
    return any(form.is_relative_to(folder) for form in forms for folder in folders)


def expand_user(text: str, environ: Mapping[str, str]) -> Path:
    """Return a path with `~` replaced by the home folder of the given environment."""
    if text == "~" or text.startswith("~/"):
        home = environ.get("HOME")
        if not home:
            raise ConfigError(f"{text} needs a home folder", "set HOME")
        return Path(home) / text[2:]
    return Path(text)
