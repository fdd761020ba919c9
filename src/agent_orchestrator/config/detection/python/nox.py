"""Read the sessions of nox from `noxfile.py`, which is parsed and never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent_orchestrator.config.detection.commands import Words
from agent_orchestrator.config.detection.files import RepositoryFiles
from agent_orchestrator.config.detection.python.environments import Environment, InstallArguments


def environments(repo: RepositoryFiles) -> Iterator[Environment]:
    """Yield the sessions of nox, as far as they are written as literals."""
    text = repo.text("noxfile.py", 200_000)
    try:
        module = ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in module.body if module else []:
        if isinstance(node, ast.FunctionDef) and any(
            "session" in ast.dump(decorator)[:400] for decorator in node.decorator_list
        ):
            yield _session_environment(node)


def _session_environment(function: ast.FunctionDef) -> Environment:
    """Return the environment of one nox session, from the calls in its function."""
    extras, groups, files, packages = list[str](), list[str](), list[str](), list[str]()
    commands: list[Words] = []
    installs_project = False
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        words = [
            argument.value
            for argument in node.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if node.func.attr in ("run", "run_always", "run_install"):
            commands.append(tuple(words))
        elif node.func.attr == "dependency_groups":
            groups += words
        elif node.func.attr == "install":
            installed = InstallArguments.parse(words)
            extras, groups, files = (
                extras + list(installed.extras),
                groups + list(installed.groups),
                files + list(installed.files),
            )
            packages += installed.packages
            installs_project = installs_project or installed.installs_project
    return Environment(
        "noxfile.py",
        function.name,
        tuple(extras),
        tuple(groups),
        tuple(files),
        tuple(packages),
        tuple(commands),
        installs_project=installs_project,
    )
