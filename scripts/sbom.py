"""Write a wheel's bill of materials, in CycloneDX, from `requirements/runtime.lock` and the dashboard's lock: `scripts/sbom.py FILE`."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")


def from_python() -> list[dict[str, Any]]:
    """Return the components for the Python packages of `requirements/runtime.lock`."""
    components = []
    for block in re.split(r"\n(?=\S)", (ROOT / "requirements/runtime.lock").read_text()):
        if match := _PINNED.match(block):
            hashes = [
                {"alg": "SHA-256", "content": digest} for digest in sorted(re.findall(r"sha256:([0-9a-f]{64})", block))
            ]
            components.append(_component("pypi", match[1], match[2], hashes))
    return components


def from_dashboard() -> list[dict[str, Any]]:
    """Return the components for the packages that are built into the dashboard."""
    packages = json.loads((ROOT / "dashboard" / "package-lock.json").read_text())["packages"]
    components = {}
    for path, package in packages.items():
        if path and not package.get("dev") and not package.get("optional"):
            kind, _, digest = package["integrity"].partition("-")
            hashes = [{"alg": kind.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}]
            component = _component("npm", path.rpartition("node_modules/")[2], package["version"], hashes)
            components[component["purl"]] = component
    return [components[purl] for purl in sorted(components)]


def _component(kind: str, name: str, version: str, hashes: list[dict[str, str]]) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "hashes": hashes}


def main(target: Path) -> None:
    """Write the bill of materials to a file."""
    source = (ROOT / "src" / "agent_orchestrator" / "__init__.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"', source, re.MULTILINE)[0]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "agent-orchestrator", "version": version}},
        "components": [*from_python(), *from_dashboard()],
    }
    target.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
