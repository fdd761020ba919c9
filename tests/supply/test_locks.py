"""Every downloaded package is pinned by its digest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements/*.lock"))
PROGRAMS = [ROOT / "Makefile", *(file for file in sorted((ROOT / "scripts").iterdir()) if file.is_file())]
FREE = {
    "lock": "makes the locks",
    "agents": "fetches other people's programs to be tried, at pinned versions, outside the repository",
}
"""Programs that may download packages without a lock, and why."""


def blocks(lock: Path) -> list[str]:
    """Return the requirements of a lock, each with its digests."""
    joined = lock.read_text().replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def test_the_required_locks_exist() -> None:
    assert {"runtime.lock", "dev.lock", "node.lock"} <= {lock.name for lock in LOCKS}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_is_one_version_with_digests(lock: Path) -> None:
    for block in blocks(lock):
        assert re.match(r"[A-Za-z0-9._\[\]-]+==[^\s;]+", block), f"{lock.name}: {block[:80]} is not pinned"
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), f"{lock.name}: {block[:80]} has no digest"
        assert "://" not in block, f"{lock.name}: {block[:80]} names a host"


def test_every_installed_package_has_a_digest() -> None:
    for program in PROGRAMS:
        text = re.sub(r"`[^`]*`", "", program.read_text()).replace("\\\n", " ")
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(r"pip\b.* install\b|\"install\"", line) and not line.lstrip().startswith("#"):
                safe = "--require-hashes" in line or "--no-deps" in line or program.name in FREE
                assert safe, f"{program.name}:{number} installs what no lock names: {line.strip()}"


def test_every_lock_is_created_by_the_script() -> None:
    script = (ROOT / "scripts" / "lock").read_text()
    for lock in LOCKS:
        assert re.search(rf"\b{lock.stem}\b", script), f"scripts/lock does not make {lock.name}"
    assert all(
        "--generate-hashes" in line for line in script.replace("\\\n", " ").splitlines() if " pip compile " in line
    )


def test_the_dashboard_is_built_from_its_lock_alone() -> None:
    lock = json.loads((ROOT / "dashboard" / "package-lock.json").read_text())
    assert lock["lockfileVersion"] >= 3
    for path, package in lock["packages"].items():
        if path and not package.get("link") and not package.get("inBundle"):  # a bundled one is in its parent's digest
            assert re.match(r"sha(512|1)-", package.get("integrity", "")), f"{path} has no digest"
            assert "resolved" not in package, f"{path} names a host"
    build = (ROOT / "scripts" / "dashboard.py").read_text()
    assert '"ci"' in build and 'npm, "install"' not in build


def test_the_bill_of_materials_lists_the_locked_packages(tmp_path: Path) -> None:
    target = tmp_path / "sbom.json"
    subprocess.run([sys.executable, ROOT / "scripts" / "sbom.py", target], check=True)
    document = json.loads(target.read_text())
    components = document["components"]
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert all(component["hashes"] and component["version"] for component in components)
    python = {component["name"] for component in components if component["purl"].startswith("pkg:pypi/")}
    assert python == {re.split(r"==", block)[0].strip() for block in blocks(ROOT / "requirements/runtime.lock")}
    assert {"react", "@xterm/xterm"} <= {
        component["name"] for component in components if component["purl"].startswith("pkg:npm/")
    }
    assert not {"vite", "pytest"} & {component["name"] for component in components}
