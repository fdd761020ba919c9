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
    """What is installed beside the wheel, at the versions that it was tried with."""
    found = []
    for block in re.split(r"\n(?=\S)", (ROOT / "requirements/runtime.lock").read_text()):
        if named := _PINNED.match(block):
            hashes = [{"alg": "SHA-256", "content": one} for one in sorted(re.findall(r"sha256:([0-9a-f]{64})", block))]
            found.append(_component("pypi", named[1], named[2], hashes))
    return found


def from_dashboard() -> list[dict[str, Any]]:
    """What is built into the dashboard."""
    packages = json.loads((ROOT / "dashboard" / "package-lock.json").read_text())["packages"]
    found = {}
    for path, one in packages.items():
        if path and not one.get("dev") and not one.get("optional"):
            kind, _, digest = one["integrity"].partition("-")
            hashes = [{"alg": kind.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}]
            component = _component("npm", path.rpartition("node_modules/")[2], one["version"], hashes)
            found[component["purl"]] = component
    return [found[purl] for purl in sorted(found)]


def _component(kind: str, name: str, version: str, hashes: list[dict[str, str]]) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "hashes": hashes}


def main(target: Path) -> None:
    """Write it."""
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
