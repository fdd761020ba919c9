"""The Python interpreter that runs this package: how to keep it off other programs' PATH, and how to write launchers
of `ao` that work without it.

A project's agents, checks, setup and fixes must find the project's own programs, not our Python, nor a pytest or
mypy that is installed with us. Look here when a program of ours is found where it should not be, or `ao` is not
found where it should be.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, MutableMapping

PROGRAMS = ("ao", "agent-orchestrator")
_LAUNCHER_TEMPLATE = """\
#!/bin/sh
exec {python} -P -m agent_orchestrator "$@"
"""
_BIN_FOLDER = "Scripts" if os.name == "nt" else "bin"
_VENV_VARIABLES = ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
_CONDA_VARIABLES = ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER", "CONDA_SHLVL")
_ACTIVATION_VARIABLES = (
    *_VENV_VARIABLES,
    *_CONDA_VARIABLES,
    "PYTHONHOME",
    "PYTHONSAFEPATH",
    "__PYVENV_LAUNCHER__",
    "HATCH_ENV_ACTIVE",
    "PIPENV_ACTIVE",
    "POETRY_ACTIVE",
)
"""Variables that an activated environment, or its interpreter, sets for the terminal in which it was activated."""
_NPM_SCRIPT = "npm_lifecycle_event"
"""Set by npm, npx, pnpm and yarn while they run a script; its PATH begins with the packages of the script's project."""


def own_prefix() -> str | None:
    """Return the environment we are installed in, or None if it is a system's or a person's own Python, which others use too."""
    return sys.prefix if _is_environment(sys.prefix) else None


def find_own_programs_folder(path: str) -> str | None:
    """Return the first entry of a PATH that holds our interpreter's programs, or None."""
    prefix = own_prefix()
    return next((entry for entry in path.split(os.pathsep) if prefix and _is_bin_of(entry, prefix)), None)


def without_own_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without our own interpreter's programs and variables; any other active environment stays."""
    prefix = own_prefix()
    if prefix is None:
        return dict(env)
    dropped = {"__PYVENV_LAUNCHER__"}
    for name, names in (
        ("VIRTUAL_ENV", _VENV_VARIABLES),
        ("CONDA_PREFIX", _CONDA_VARIABLES),
        ("PYTHONHOME", ("PYTHONHOME",)),
    ):
        if name in env and _is_same_path(env[name], prefix):
            dropped.update(names)
    result = {name: value for name, value in env.items() if name not in dropped}
    if "PATH" in result:
        result["PATH"] = _filter_path(result["PATH"], lambda entry: not _is_bin_of(entry, prefix))
    if modules := result.pop("PYTHONPATH", ""):
        prefix_path = os.path.realpath(prefix) + os.sep
        if remaining := _filter_path(modules, lambda entry: not os.path.realpath(entry).startswith(prefix_path)):
            result["PYTHONPATH"] = remaining
    return result


def without_environments(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment as it would be if no project's environment had been activated in it, ours included."""
    result = {name: value for name, value in without_own_interpreter(env).items() if name not in _ACTIVATION_VARIABLES}
    is_npm_script = result.pop(_NPM_SCRIPT, None) is not None
    if "PATH" in result:
        result["PATH"] = _filter_path(result["PATH"], lambda entry: not _is_project_path(entry, is_npm_script))
    return result


def with_launchers(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return an environment whose PATH begins with the folder of our launchers."""
    others = [entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry != folder]
    return {**env, "PATH": os.pathsep.join([folder, *others])}


def clean_process_environment(environ: MutableMapping[str, str], folder: str) -> None:
    """Change this process's environment so that a project's programs may be started with it: `ao` is found in
    `folder`, our other programs nowhere.
    """
    environment = with_launchers(without_environments(environ), folder)
    environ.clear()
    environ.update(environment)


def make_launchers(folder: str) -> None:
    """Write the programs that start `ao` with this interpreter, wherever they are called from, into a folder that holds nothing else."""
    os.makedirs(folder, mode=0o755, exist_ok=True)
    text = _LAUNCHER_TEMPLATE.format(python=shlex.quote(sys.executable))
    for name in PROGRAMS:
        path = os.path.join(folder, name)
        if _executable_text(path) == text:
            continue
        draft = f"{path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, 0o755)
        os.replace(draft, path)


def export_line(home: str) -> str:
    """Return the line for a person's shell that puts `ao` on the PATH, and nothing else."""
    installed_folder = os.path.join(sys.prefix, "ao", "bin")
    folder = (
        installed_folder if os.path.exists(os.path.join(installed_folder, PROGRAMS[0])) else os.path.join(home, "bin")
    )
    return f'export PATH="{folder}:$PATH"'


def _executable_text(path: str) -> str:
    """Return the text of an executable file, or "" if it is not there or not executable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() if os.access(path, os.X_OK) else ""
    except OSError:
        return ""


def _filter_path(path: str, is_kept: Callable[[str], bool]) -> str:
    """Return a PATH with only those entries for which `is_kept` is true."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry and is_kept(entry))


def _is_same_path(path: str, other: str) -> bool:
    """Return whether two paths lead to the same file or folder."""
    return os.path.realpath(path) == os.path.realpath(other)


def _is_bin_of(entry: str, prefix: str) -> bool:
    """Return whether an entry of a PATH is the folder of a prefix's programs."""
    return bool(entry) and _is_same_path(entry, os.path.join(prefix, _BIN_FOLDER))


def _is_environment(prefix: str) -> bool:
    """Return whether a prefix is a virtual environment, or a conda environment other than its base."""
    markers = {name for name in ("pyvenv.cfg", "conda-meta", "condabin") if os.path.exists(os.path.join(prefix, name))}
    return "pyvenv.cfg" in markers or markers == {"conda-meta"}


def _is_project_path(entry: str, is_npm_script: bool) -> bool:
    """Return whether a folder has the programs of a Python environment, or of Node packages that npm put on the PATH to run a script."""
    entry = entry.rstrip(os.sep)
    folder, name = os.path.split(entry)
    if name == ".bin":
        return is_npm_script and os.path.basename(folder) == "node_modules"
    return name == _BIN_FOLDER and _is_environment(folder)


if __name__ == "__main__":
    make_launchers(sys.argv[1])
