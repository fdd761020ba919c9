"""Convert files of our format, or nearly: agent-orchestrator's in TypeScript, and project output of its successor in Go.

They go through `old_spellings.py` as every file does. Keys are matched before and after by line and spelling, which the tree remembers.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from agent_orchestrator.config.importers.key_report import ImportedConfig, KeyReport
from agent_orchestrator.config.model import Config
from agent_orchestrator.config.old_spellings import normalize
from agent_orchestrator.config.problems import ConfigNotes
from agent_orchestrator.config.units import quote_value
from agent_orchestrator.config.yaml_tree import Items, Section, expand_variables, sections, without_positions

Steps = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A value of a file: its path, its line, and how its key is spelled."""

    path: Steps
    line: int
    key: str
    value: Any


_GO_KEYS = frozenset({"trackerIntake", "reviewers", "agentPreferences", "containerReap", "harness"})
_GO_PERMISSIONS = {"accept-edits": "auto-edit", "auto": "auto-edit", "bypass-permissions": "full"}
_GO_DROPPED = {
    "agentPreferences": "roles of its own planner; here: orchestrator.planner, orchestrator.coordinator",
    "containerReap": "containers of a session always end with it",
}
_TRACKERS = ("github", "gitlab", "linear", "jira")


def convert_typescript(tree: Section, notes: ConfigNotes, path: Path, folder: Path) -> ImportedConfig:
    """Convert agent-orchestrator's own YAML. An early version had one `worktreeDir` for all projects."""
    brought = ImportedConfig("agent-orchestrator (TypeScript)")
    before = list(_leaves(tree))
    if "worktreeDir" in tree and isinstance(tree.get("projects"), Section):
        value, line = tree["worktreeDir"], tree.lines["worktreeDir"]
        tree.drop("worktreeDir")
        for _, project in sections(tree["projects"]):
            if "worktreeDir" not in project:
                project.put("worktreeDir", value, line)
    _normalise_and_report(tree, before, notes, brought, path, folder)
    return brought


def is_go_project(tree: Section) -> bool:
    """Return whether this is a project as `ao project get ID --json` prints it, or the `config` in that."""
    project = tree.get("project")
    if isinstance(project, Section) and isinstance(project.get("config"), Section):
        return True
    return "projects" not in tree and bool(_GO_KEYS & set(tree))


def convert_go(tree: Section, notes: ConfigNotes, path: Path, folder: Path) -> ImportedConfig:
    """Convert one project of the Go version's database."""
    brought = ImportedConfig("agent-orchestrator (Go)")
    before = list(_leaves(tree))
    source: Section = tree["project"] if isinstance(tree.get("project"), Section) else tree
    config = source.get("config")
    config = config if isinstance(config, Section) else source
    project, root = Section(source.line), Section(1)
    name = str(source.get("id") or source.get("name") or folder.name)
    for key in ("name", "path", "repo"):
        if source is not config and isinstance(source.get(key), str) and source[key]:
            source.move(key, project, key)
    for key in list(config):
        if key in _GO_DROPPED:
            line = config.lines[key]
            config.drop(key)
            notes.add_warning(line, key, _GO_DROPPED[key])
    _go_branch(config, notes)
    _go_intake(config, project, notes)
    _go_reviewers(config, root, notes)
    for holder in (
        config,
        *(config[key] for key in ("worker", "orchestrator") if isinstance(config.get(key), Section)),
    ):
        _go_permissions(holder)
    for key in list(config):
        config.move(key, project, key)
    projects = root.section("projects", source.line)
    projects.put(name, project, source.line)
    _normalise_and_report(root, before, notes, brought, path, folder)
    id_entry = {"project.id": KeyReport("project.id", "changed", f"projects.{name}", "its name in the configuration")}
    brought.entries = [id_entry.get(entry.key, entry) for entry in brought.entries]
    return brought


def _go_branch(config: Section, notes: ConfigNotes) -> None:
    if config.get("defaultBranch") in ("auto", ""):
        line = config.lines["defaultBranch"]
        config.drop("defaultBranch")
        notes.add_warning(line, "defaultBranch", "found by itself")


def _go_intake(config: Section, project: Section, notes: ConfigNotes) -> None:
    intake = config.get("trackerIntake")
    if not isinstance(intake, Section):
        return
    config.drop("trackerIntake")
    if intake.get("provider") in _TRACKERS:
        intake.move("provider", project.section("tracker", intake.line), "plugin")
    for key in list(intake):
        line = intake.lines[key]
        notes.add_warning(
            line, key, "issues are taken by orchestrator.autoAssign and the profiles' filters: see ao backlog"
        )


def _go_reviewers(config: Section, root: Section, notes: ConfigNotes) -> None:
    reviewers = config.get("reviewers")
    if not isinstance(reviewers, Items):
        return
    line = config.lines["reviewers"]
    config.drop("reviewers")
    for number, reviewer in enumerate(reviewers):
        if number or not isinstance(reviewer, Section) or "harness" not in reviewer:
            notes.add_warning(
                reviewers.lines[number], "reviewers", "one profile is enough: ao review --agent names others"
            )
            continue
        profile = root.section("agents", line).section("reviewer", line)
        reviewer.move("harness", profile, "tool")
        profile.put("role", "reviewer", line)


def _go_permissions(holder: Section) -> None:
    inner = holder.get("agentConfig")
    if isinstance(inner, Section) and str(inner.get("permissions")) in _GO_PERMISSIONS:
        inner["permissions"] = _GO_PERMISSIONS[str(inner["permissions"])]


# -- through the one normaliser ----------------------------------------------------------------------------------------


def _normalise_and_report(
    tree: Section, before: list[Leaf], notes: ConfigNotes, brought: ImportedConfig, path: Path, folder: Path
) -> None:
    """Normalise the tree, remove what is not accepted, and report what became of each leaf."""
    normalize(tree, notes)
    notes.raise_problems()
    moved = _rebase(tree, path.parent, folder)
    refused = _remove_refused(tree)
    after = list(_leaves(tree))
    brought.config = without_positions(tree)
    matches = _match_leaves(before, after)
    for number, leaf in enumerate(before):
        brought.entries.append(_report_leaf(leaf, matches.get(number), after, notes, moved, refused))


def _match_leaves(before: list[Leaf], after: list[Leaf]) -> dict[int, Leaf]:
    """Return where each leaf is now, by index: on the same line, first by key, then by value."""
    remaining, matches = list(after), dict[int, Leaf]()
    for by_name in (True, False):
        for number, leaf in enumerate(before):
            if number in matches:
                continue
            candidates = [
                candidate
                for candidate in remaining
                if candidate.line == leaf.line
                and (candidate.key == leaf.key if by_name else candidate.value == leaf.value)
            ]
            if candidates:
                match = max(
                    candidates, key=lambda candidate: (candidate.path == leaf.path, candidate.value == leaf.value)
                )
                matches[number] = match
                remaining.remove(match)
    return matches


def _report_leaf(
    leaf: Leaf,
    current: Leaf | None,
    after: list[Leaf],
    notes: ConfigNotes,
    moved: dict[str, str],
    refused: dict[tuple[int, str], str],
) -> KeyReport:
    """Return the report of what became of one leaf."""
    key = _dotted(leaf.path)
    if current is None and (renamed_to := _renamed_key(leaf, after)):
        return KeyReport(key, "changed", renamed_to, "its name in the configuration")
    if current is None:
        other = (
            "another key of the file says otherwise"
            if any(other_leaf.path == leaf.path for other_leaf in after)
            else ""
        )
        why = refused.get((leaf.line, leaf.key)) or _warning(notes, leaf) or other or "it has no meaning here"
        return KeyReport(key, "dropped", note=why)
    to = _dotted(current.path)
    same = (
        ""
        if current.value == leaf.value
        else f"{quote_value(without_positions(leaf.value))} is {quote_value(without_positions(current.value))} here"
    )
    note = moved.get(to, same)
    return KeyReport(key, "taken" if current.path == leaf.path and not note else "changed", to, note)


def _renamed_key(leaf: Leaf, after: list[Leaf]) -> str:
    """Return the key that a list item became, if this leaf was its id or name; else ""."""
    if leaf.key not in ("id", "name") or not isinstance(leaf.value, str):
        return ""
    item_path = next(
        (
            other_leaf.path
            for other_leaf in after
            if leaf.value in other_leaf.path[:2] and other_leaf.path[0] == leaf.path[0]
        ),
        (),
    )
    return _dotted(item_path[: item_path.index(leaf.value) + 1]) if item_path else ""


def _leaves(tree: Any, path: Steps = (), line: int = 1, key: str = "") -> Iterator[Leaf]:
    """Yield every value that is not a mapping, or a list of mappings."""
    if isinstance(tree, Section) and tree:
        for name in tree:
            yield from _leaves(tree[name], (*path, name), tree.lines[name], tree.spelled[name])
    elif isinstance(tree, Items) and any(isinstance(item, Section) for item in tree):
        for number, item in enumerate(tree):
            yield from _leaves(item, (*path, number), tree.lines[number], key)
    elif path:
        yield Leaf(path, line, key, copy.deepcopy(tree))


def _warning(notes: ConfigNotes, leaf: Leaf) -> str:
    """Return the warning about this leaf or its section, or ""."""
    prefix = f"{notes.file}:{leaf.line}: "
    for warning in notes.warnings:
        key, _, text = warning.removeprefix(prefix).partition(": ")
        if warning.startswith(prefix) and key.rpartition(".")[2] in leaf.path:
            return text
    return ""


def _rebase(tree: Section, source: Path, folder: Path) -> dict[str, str]:
    """Rewrite paths relative to the source file so that they mean the same from `folder`. Return a note for each changed key."""
    moved: dict[str, str] = {}
    holders: list[tuple[Steps, Section]] = [
        (("projects", name), section) for name, section in sections(tree.get("projects"))
    ]
    plugins = tree.get("plugins")
    if isinstance(plugins, Items):
        holders += [
            (("plugins", number), section) for number, section in enumerate(plugins) if isinstance(section, Section)
        ]
    for path, holder in holders:
        present = holder.get("path")
        if not isinstance(present, str) or present.startswith(("~", "$")):
            continue
        absolute = Path(os.path.normpath(source / present))
        new = (
            "." if absolute == folder.resolve() else present if source.resolve() == folder.resolve() else str(absolute)
        )
        if new != present:
            holder["path"] = new
            moved[_dotted((*path, "path"))] = f"{present} is {new} from here"
    return moved


def _remove_refused(tree: Section) -> dict[tuple[int, str], str]:
    """Remove what the model refuses, and return the reason by line and spelling of the key."""
    refused: dict[tuple[int, str], str] = {}
    for _ in range(200):
        candidate = copy.deepcopy(tree)
        expand_variables(candidate, os.environ, ConfigNotes("-"))
        try:
            Config.model_validate(candidate)
        except ValidationError as error:
            before = len(refused)
            for detail in error.errors(include_url=False):
                refused |= _remove_path(tree, detail["loc"], _refusal_reason(detail))
            if len(refused) == before:
                break
        else:
            break
    return refused


def _refusal_reason(detail: Any) -> str:
    if detail["type"] == "extra_forbidden":
        return "there is no such key here"
    message = str(detail.get("ctx", {}).get("error", detail["msg"])).partition("; ")[0]
    return f"not accepted here: {message[0].lower()}{message[1:]}"


def _remove_path(tree: Any, path: Steps, why: str) -> dict[tuple[int, str], str]:
    """Remove what is at a path, and return the given reason by line and spelling of each removed key."""
    owner: Any = None
    last: Any = None
    for step in path:
        if isinstance(tree, Section) and step in tree:
            owner, last, tree = tree, step, tree[step]  # type: ignore[index]
        elif isinstance(tree, Items) and isinstance(step, int) and step < len(tree):
            owner, last, tree = tree, step, tree[step]
        else:
            break
    if isinstance(owner, Section):
        removed = {
            (leaf.line, leaf.key): why for leaf in _leaves(owner[last], (last,), owner.lines[last], owner.spelled[last])
        }
        owner.drop(last)
        return removed
    if isinstance(owner, Items):
        line = owner.lines.pop(last)
        del owner[last]
        return {(line, str(last)): why}
    return {}


def _dotted(path: Steps) -> str:
    return ".".join(str(step) for step in path)
