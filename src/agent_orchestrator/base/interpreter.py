"""The interpreter that runs us: what of it stands on a PATH, how to leave that out, and the launchers of `ao` that need none of it.

A project's agents, checks, set-up and fixes find the project's own programs: never our Python, nor a pytest or mypy that is
installed beside us. Look here when a program of ours is found where it should not be, or `ao` is not found where it should be.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, MutableMapping

PROGRAMS = ("ao", "agent-orchestrator")
_LAUNCHER = """\
#!/bin/sh
exec {python} -P -m agent_orchestrator "$@"
"""
_BIN = "Scripts" if os.name == "nt" else "bin"
_OF_VENVS = ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
_OF_CONDA = ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER", "CONDA_SHLVL")
_ACTIVATED = (
    *_OF_VENVS,
    *_OF_CONDA,
    "PYTHONHOME",
    "PYTHONSAFEPATH",
    "__PYVENV_LAUNCHER__",
    "HATCH_ENV_ACTIVE",
    "PIPENV_ACTIVE",
    "POETRY_ACTIVE",
)
"""What an activated environment, or the interpreter in it, sets for the terminal that it was activated in."""
_NPM_SCRIPT = "npm_lifecycle_event"
"""Set by npm, npx, pnpm and yarn while they run a script; its PATH begins with the packages of the script's project."""


def own_prefix() -> str | None:
    """Return the environment we are installed in; nothing if that is a system's or a person's own Python, which is not ours alone."""
    return sys.prefix if _is_environment(sys.prefix) else None


def own_folder(path: str) -> str | None:
    """Return the first entry of a PATH that holds our interpreter's programs."""
    prefix = own_prefix()
    return next((entry for entry in path.split(os.pathsep) if prefix and _is_bin_of(entry, prefix)), None)


def without_own(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without our own interpreter's programs and variables; any other that is active in it stays."""
    prefix = own_prefix()
    if prefix is None:
        return dict(env)
    dropped = {"__PYVENV_LAUNCHER__"}
    for name, names in (("VIRTUAL_ENV", _OF_VENVS), ("CONDA_PREFIX", _OF_CONDA), ("PYTHONHOME", ("PYTHONHOME",))):
        if name in env and _same(env[name], prefix):
            dropped.update(names)
    kept = {name: value for name, value in env.items() if name not in dropped}
    if "PATH" in kept:
        kept["PATH"] = _filtered(kept["PATH"], lambda entry: not _is_bin_of(entry, prefix))
    if modules := kept.pop("PYTHONPATH", ""):
        inside = os.path.realpath(prefix) + os.sep
        if left := _filtered(modules, lambda entry: not os.path.realpath(entry).startswith(inside)):
            kept["PYTHONPATH"] = left
    return kept


def deactivated(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment as it would be if no project's environment had been activated in it, ours included."""
    kept = {name: value for name, value in without_own(env).items() if name not in _ACTIVATED}
    by_npm = kept.pop(_NPM_SCRIPT, None) is not None
    if "PATH" in kept:
        kept["PATH"] = _filtered(kept["PATH"], lambda entry: not _is_of_a_project(entry, by_npm))
    return kept


def with_launchers(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return an environment whose PATH begins with the folder of our launchers."""
    others = [entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry != folder]
    return {**env, "PATH": os.pathsep.join([folder, *others])}


def begin_anew(environ: MutableMapping[str, str], folder: str) -> None:
    """Change this process's environment to one that anything of a project may be started with: `ao` is found in `folder`, ours nowhere."""
    wanted = with_launchers(deactivated(environ), folder)
    environ.clear()
    environ.update(wanted)


def make_launchers(folder: str) -> None:
    """Write the programs that start `ao` by this interpreter, wherever they are called from, into a folder that holds nothing else."""
    os.makedirs(folder, mode=0o755, exist_ok=True)
    text = _LAUNCHER.format(python=shlex.quote(sys.executable))
    for name in PROGRAMS:
        path = os.path.join(folder, name)
        if _content(path) == text:
            continue
        new = f"{path}.{os.getpid()}"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(new, 0o755)
        os.replace(new, path)


def export_line(home: str) -> str:
    """Return the line for a person's shell that puts `ao` on the PATH, and nothing else."""
    beside = os.path.join(sys.prefix, "ao", "bin")
    folder = beside if os.path.exists(os.path.join(beside, PROGRAMS[0])) else os.path.join(home, "bin")
    return f'export PATH="{folder}:$PATH"'


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() if os.access(path, os.X_OK) else ""
    except OSError:
        return ""


def _filtered(path: str, wanted: Callable[[str], bool]) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry and wanted(entry))


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _is_bin_of(entry: str, prefix: str) -> bool:
    return bool(entry) and _same(entry, os.path.join(prefix, _BIN))


def _is_environment(prefix: str) -> bool:
    """A virtual environment, or one of conda's that is not its base."""
    there = {name for name in ("pyvenv.cfg", "conda-meta", "condabin") if os.path.exists(os.path.join(prefix, name))}
    return "pyvenv.cfg" in there or there == {"conda-meta"}


def _is_of_a_project(entry: str, by_npm: bool) -> bool:
    """The programs of a Python environment, or of Node packages that npm has put there to run a script."""
    entry = entry.rstrip(os.sep)
    folder, name = os.path.split(entry)
    if name == ".bin":
        return by_npm and os.path.basename(folder) == "node_modules"
    return name == _BIN and _is_environment(folder)


if __name__ == "__main__":
    make_launchers(sys.argv[1])
