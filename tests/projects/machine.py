"""What the corpus uses of this machine: the cache, the developers' programs, and their login environment."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.projects.corpus import CorpusProject

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "projects"


class ToolUnavailable(Exception):
    """A registry or tool failed."""


_CACHES = {
    "PIP_CACHE_DIR": "pip",
    "npm_config_cache": "npm",
    "UV_CACHE_DIR": "uv",
    "POETRY_CACHE_DIR": "poetry",
    "PDM_CACHE_DIR": "pdm",
    "GOCACHE": "go-build",
    "GOMODCACHE": "go-mod",
    "CARGO_HOME": "cargo",
    "YARN_CACHE_FOLDER": "yarn",
    "npm_config_store_dir": "pnpm",
}
"""Package caches that all homes share, by the environment variable."""

_KEPT_VARIABLES = ("LANG", "LC_ALL", "TZ", "TERM", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_KEPT_PREFIXES = (
    "PIP_",
    "UV_",
    "NPM_CONFIG_",
    "npm_config_",
    "RUSTUP_",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)


def find_python() -> str:
    """Return a Python outside our virtual environment."""
    return str(Path(sys.base_prefix) / "bin" / "python3")


def login_environment(project: CorpusProject, home: Path) -> dict[str, str]:
    """Return the login environment of a developer of this project, with this home."""
    env = {
        name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }
    env |= {name: str(CACHE / "packages" / folder) for name, folder in _CACHES.items()}
    env |= _registries(Path.home())
    virtual_environment = str(ROOT / ".venv")
    path = [
        entry
        for entry in os.environ.get("PATH", "").split(os.pathsep)
        if entry and not entry.startswith(virtual_environment)
    ]
    env["PATH"] = os.pathsep.join([*map(str, _tool_folders(project.tools)), str(Path(sys.base_prefix) / "bin"), *path])
    if "poetry" in project.tools:
        env["POETRY_PYPI_MIRROR_URL"] = _index()
    env["POETRY_VIRTUALENVS_PATH"] = str(home / "virtualenvs")  # in the shared cache otherwise
    return {**env, "HOME": str(home), "CI": "1", "GIT_CONFIG_NOSYSTEM": "1", **project.env}


def _registries(home: Path) -> dict[str, str]:
    """Return the variables that point to the registry settings of this machine's user, which a fresh home lacks."""
    files = {"PIP_CONFIG_FILE": ".config/pip/pip.conf", "NPM_CONFIG_USERCONFIG": ".npmrc", "RUSTUP_HOME": ".rustup"}
    return {name: str(home / file) for name, file in files.items() if (home / file).exists()}


@cache
def _index() -> str:
    """Return the index URL that pip uses, for Poetry's mirror plugin: Poetry itself needs an API that not every index has."""
    process = subprocess.run(
        [find_python(), "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    default = [find_python(), "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"]
    return process.stdout.strip() or subprocess.run(default, capture_output=True, text=True, check=True).stdout.strip()


def make_home(folder: Path, env: Mapping[str, str]) -> Path:
    """Make a new home whose login shell sets this environment, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"export {name}={_quoted(value)}" for name, value in env.items() if name not in ("HOME", "TERM")]
    (folder / ".profile").write_text("\n".join(lines) + "\n")
    person = "[user]\n\tname = Person\n\temail = person@example.invalid\n[init]\n\tdefaultBranch = main\n"
    (folder / ".gitconfig").write_text(person)
    return folder


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _tool_folders(tools: Sequence[str]) -> list[Path]:
    return [_tool(name) for name in tools]


def _tool(name: str) -> Path:
    """Return a folder that contains only this program; install it on first use."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _installed_tool(name)


def _installed_tool(name: str) -> Path:
    tool = tomllib.loads((Path(__file__).parent / "tools.toml").read_text())[name]
    folder = CACHE / "tools" / f"{name}-{tool['version']}"
    program_folder = folder / "shown"
    command = tool.get("command", name)
    if (
        program_folder / command
    ).exists():  # not so if the cache was moved: the link is absolute, and so is what it leads to
        return program_folder
    shutil.rmtree(folder, ignore_errors=True)
    requirement = f"{tool['package']}{'==' if tool['registry'] == 'pypi' else '@'}{tool['version']}"
    if tool["registry"] == "pypi":
        _run([find_python(), "-m", "venv", str(folder / "venv")])
        _run([str(folder / "venv/bin/pip"), "install", "-qq", requirement, *tool.get("with", ())])
        program = folder / "venv/bin" / command
    else:
        _run(["npm", "install", "--silent", "--prefix", str(folder), requirement])
        program = folder / "node_modules/.bin" / command
    (folder / "making").mkdir()
    (folder / "making" / command).symlink_to(program)
    (folder / "making").rename(program_folder)
    return program_folder


def _run(argv: Sequence[str]) -> None:
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode:
        raise ToolUnavailable(f"{' '.join(argv)}: {process.stderr.strip()[-800:]}")


def install_packages(project: CorpusProject) -> str:
    """Install the Debian packages that a project needs if that works without questions; return the missing ones, or ""."""
    if not all(map(_installed, project.packages)) and os.geteuid() == 0 and shutil.which("apt-get"):
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "packages.lock").open("w") as lock:  # two that install at once refuse each other
            fcntl.flock(lock, fcntl.LOCK_EX)
            if missing := [package for package in project.packages if not _installed(package)]:
                for argv in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
                    subprocess.run(["apt-get", *argv], check=False, capture_output=True)
    return ", ".join(package for package in project.packages if not _installed(package))


def _installed(package: str) -> bool:
    process = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True, check=False
    )
    return process.stdout.endswith("ok installed")
