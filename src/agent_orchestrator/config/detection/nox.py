"""The sessions of nox: `noxfile.py`, which is parsed and never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent_orchestrator.config.detection.commands import Words
from agent_orchestrator.config.detection.environments import Environment, Installed
from agent_orchestrator.config.detection.files import Repository


def environments(repo: Repository) -> Iterator[Environment]:
    """Yield the sessions of nox, as far as they are written as literals."""
    text = repo.text("noxfile.py", 200_000)
    try:
        module = ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in module.body if module else []:
        if isinstance(node, ast.FunctionDef) and any("session" in ast.dump(one)[:400] for one in node.decorator_list):
            yield _session(node)


def _session(function: ast.FunctionDef) -> Environment:
    extras, groups, files, packages = list[str](), list[str](), list[str](), list[str]()
    commands: list[Words] = []
    project = False
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if node.func.attr in ("run", "run_always", "run_install"):
            commands.append(tuple(words))
        elif node.func.attr == "dependency_groups":
            groups += words
        elif node.func.attr == "install":
            found = Installed.read(words)
            extras, groups, files = extras + list(found.extras), groups + list(found.groups), files + list(found.files)
            packages += found.packages
            project = project or found.project
    return Environment(
        "noxfile.py",
        function.name,
        tuple(extras),
        tuple(groups),
        tuple(files),
        tuple(packages),
        tuple(commands),
        installs_project=project,
    )
