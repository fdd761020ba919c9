"""Files that have our form, or nearly: agent-orchestrator's in TypeScript, and what its successor in Go tells of a project.

They go the way of every file (`compat.py`). What became of a key is found out by its line and spelling, which are remembered.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from agent_orchestrator.config.compat import normalise
from agent_orchestrator.config.importers.key_report import Brought, Entry
from agent_orchestrator.config.model import Config
from agent_orchestrator.config.problems import Notes
from agent_orchestrator.config.values import shown
from agent_orchestrator.config.yaml_tree import Items, Section, expand, plain, sections

Steps = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A value of a file: where it is, on which line, and how its key is spelled."""

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


def typescript(tree: Section, notes: Notes, path: Path, folder: Path) -> Brought:
    """agent-orchestrator's own yaml; the early one had one `worktreeDir` for all projects."""
    brought = Brought("agent-orchestrator (TypeScript)")
    before = list(_leaves(tree))
    if "worktreeDir" in tree and isinstance(tree.get("projects"), Section):
        value, line = tree["worktreeDir"], tree.lines["worktreeDir"]
        tree.drop("worktreeDir")
        for _, project in sections(tree["projects"]):
            if "worktreeDir" not in project:
                project.put("worktreeDir", value, line)
    _through(tree, before, notes, brought, path, folder)
    return brought


def is_go(tree: Section) -> bool:
    """Is it a project as `ao project get ID --json` tells it, or the `config` in that?"""
    project = tree.get("project")
    if isinstance(project, Section) and isinstance(project.get("config"), Section):
        return True
    return "projects" not in tree and bool(_GO_KEYS & set(tree))


def go(tree: Section, notes: Notes, path: Path, folder: Path) -> Brought:
    """One project of its database."""
    brought = Brought("agent-orchestrator (Go)")
    before = list(_leaves(tree))
    told: Section = tree["project"] if isinstance(tree.get("project"), Section) else tree
    config = told.get("config")
    config = config if isinstance(config, Section) else told
    project, root = Section(told.line), Section(1)
    name = str(told.get("id") or told.get("name") or folder.name)
    for key in ("name", "path", "repo"):
        if told is not config and isinstance(told.get(key), str) and told[key]:
            told.move(key, project, key)
    for key in list(config):
        if key in _GO_DROPPED:
            line = config.lines[key]
            config.drop(key)
            notes.warn(line, key, _GO_DROPPED[key])
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
    projects = root.section("projects", told.line)
    projects.put(name, project, told.line)
    _through(root, before, notes, brought, path, folder)
    named = {"project.id": Entry("project.id", "changed", f"projects.{name}", "its name in the configuration")}
    brought.entries = [named.get(entry.key, entry) for entry in brought.entries]
    return brought


def _go_branch(config: Section, notes: Notes) -> None:
    if config.get("defaultBranch") in ("auto", ""):
        line = config.lines["defaultBranch"]
        config.drop("defaultBranch")
        notes.warn(line, "defaultBranch", "found by itself")


def _go_intake(config: Section, project: Section, notes: Notes) -> None:
    intake = config.get("trackerIntake")
    if not isinstance(intake, Section):
        return
    config.drop("trackerIntake")
    if intake.get("provider") in _TRACKERS:
        intake.move("provider", project.section("tracker", intake.line), "plugin")
    for key in list(intake):
        line = intake.lines[key]
        notes.warn(line, key, "issues are taken by orchestrator.autoAssign and the profiles' filters: see ao backlog")


def _go_reviewers(config: Section, root: Section, notes: Notes) -> None:
    reviewers = config.get("reviewers")
    if not isinstance(reviewers, Items):
        return
    line = config.lines["reviewers"]
    config.drop("reviewers")
    for number, one in enumerate(reviewers):
        if number or not isinstance(one, Section) or "harness" not in one:
            notes.warn(reviewers.lines[number], "reviewers", "one profile is enough: ao review --agent names others")
            continue
        profile = root.section("agents", line).section("reviewer", line)
        one.move("harness", profile, "tool")
        profile.put("role", "reviewer", line)


def _go_permissions(holder: Section) -> None:
    inner = holder.get("agentConfig")
    if isinstance(inner, Section) and str(inner.get("permissions")) in _GO_PERMISSIONS:
        inner["permissions"] = _GO_PERMISSIONS[str(inner["permissions"])]


# -- through the one normaliser ----------------------------------------------------------------------------------------


def _through(tree: Section, before: list[Leaf], notes: Notes, brought: Brought, path: Path, folder: Path) -> None:
    normalise(tree, notes)
    notes.check()
    moved = _rebase(tree, path.parent, folder)
    refused = _refused(tree)
    after = list(_leaves(tree))
    brought.config = plain(tree)
    found = _found(before, after)
    for number, leaf in enumerate(before):
        brought.entries.append(_entry(leaf, found.get(number), after, notes, moved, refused))


def _found(before: list[Leaf], after: list[Leaf]) -> dict[int, Leaf]:
    """Where each is now: at its line, first under its own name, else under another with its value."""
    left, found = list(after), dict[int, Leaf]()
    for by_name in (True, False):
        for number, leaf in enumerate(before):
            if number in found:
                continue
            fitting = [
                one
                for one in left
                if one.line == leaf.line and (one.key == leaf.key if by_name else one.value == leaf.value)
            ]
            if fitting:
                best = max(fitting, key=lambda one: (one.path == leaf.path, one.value == leaf.value))
                found[number] = best
                left.remove(best)
    return found


def _entry(
    leaf: Leaf,
    now: Leaf | None,
    after: list[Leaf],
    notes: Notes,
    moved: dict[str, str],
    refused: dict[tuple[int, str], str],
) -> Entry:
    key = _dotted(leaf.path)
    if now is None and (named := _named(leaf, after)):
        return Entry(key, "changed", named, "its name in the configuration")
    if now is None:
        other = "another key of the file says otherwise" if any(one.path == leaf.path for one in after) else ""
        why = refused.get((leaf.line, leaf.key)) or _warning(notes, leaf) or other or "it has no meaning here"
        return Entry(key, "dropped", note=why)
    to = _dotted(now.path)
    same = "" if now.value == leaf.value else f"{shown(plain(leaf.value))} is {shown(plain(now.value))} here"
    note = moved.get(to, same)
    return Entry(key, "taken" if now.path == leaf.path and not note else "changed", to, note)


def _named(leaf: Leaf, after: list[Leaf]) -> str:
    """The key that an item of a list became, where this is what it was called by."""
    if leaf.key not in ("id", "name") or not isinstance(leaf.value, str):
        return ""
    found = next((one.path for one in after if leaf.value in one.path[:2] and one.path[0] == leaf.path[0]), ())
    return _dotted(found[: found.index(leaf.value) + 1]) if found else ""


def _leaves(tree: Any, path: Steps = (), line: int = 1, key: str = "") -> Iterator[Leaf]:
    """Everything that is no mapping."""
    if isinstance(tree, Section) and tree:
        for name in tree:
            yield from _leaves(tree[name], (*path, name), tree.lines[name], tree.spelled[name])
    elif isinstance(tree, Items) and any(isinstance(item, Section) for item in tree):
        for number, item in enumerate(tree):
            yield from _leaves(item, (*path, number), tree.lines[number], key)
    elif path:
        yield Leaf(path, line, key, copy.deepcopy(tree))


def _warning(notes: Notes, leaf: Leaf) -> str:
    """What was said of it, or of what it is in, when it was left out."""
    begin = f"{notes.file}:{leaf.line}: "
    for one in notes.warnings:
        key, _, said = one.removeprefix(begin).partition(": ")
        if one.startswith(begin) and key.rpartition(".")[2] in leaf.path:
            return said
    return ""


def _rebase(tree: Section, source: Path, folder: Path) -> dict[str, str]:
    """Paths that were meant from where the file lies are written so that they mean the same from `folder`."""
    moved: dict[str, str] = {}
    holders: list[tuple[Steps, Section]] = [(("projects", name), one) for name, one in sections(tree.get("projects"))]
    plugins = tree.get("plugins")
    if isinstance(plugins, Items):
        holders += [(("plugins", number), one) for number, one in enumerate(plugins) if isinstance(one, Section)]
    for path, holder in holders:
        given = holder.get("path")
        if not isinstance(given, str) or given.startswith(("~", "$")):
            continue
        whole = Path(os.path.normpath(source / given))
        new = "." if whole == folder.resolve() else given if source.resolve() == folder.resolve() else str(whole)
        if new != given:
            holder["path"] = new
            moved[_dotted((*path, "path"))] = f"{given} is {new} from here"
    return moved


def _refused(tree: Section) -> dict[tuple[int, str], str]:
    """Take out what no configuration of ours may hold; line and spelling of each → why."""
    refused: dict[tuple[int, str], str] = {}
    for _ in range(200):
        tried = copy.deepcopy(tree)
        expand(tried, os.environ, Notes("-"))
        try:
            Config.model_validate(tried)
        except ValidationError as error:
            before = len(refused)
            for found in error.errors(include_url=False):
                refused |= _take_out(tree, found["loc"], _why(found))
            if len(refused) == before:
                break
        else:
            break
    return refused


def _why(found: Any) -> str:
    if found["type"] == "extra_forbidden":
        return "there is no such key here"
    said = str(found.get("ctx", {}).get("error", found["msg"])).partition("; ")[0]
    return f"not accepted here: {said[0].lower()}{said[1:]}"


def _take_out(tree: Any, path: Steps, why: str) -> dict[tuple[int, str], str]:
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
        gone = {
            (one.line, one.key): why for one in _leaves(owner[last], (last,), owner.lines[last], owner.spelled[last])
        }
        owner.drop(last)
        return gone
    if isinstance(owner, Items):
        line = owner.lines.pop(last)
        del owner[last]
        return {(line, str(last)): why}
    return {}


def _dotted(path: Steps) -> str:
    return ".".join(str(step) for step in path)
