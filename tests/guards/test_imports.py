"""What is loaded, which is most of what a command costs and much of what a daemon does. Python's own modules differ between its versions
and are not counted."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

VERSION = {"agent_orchestrator": 4, "click": 12}
"""`ao --version`: modules of each package. What `ao status` loads is counted beside what it shows, in unit/cli/test_status.py."""
DAEMON = {"agent_orchestrator": 426, "sqlalchemy": 85, "pydantic": 50, "ruamel": 32, "uvicorn": 26, "starlette": 12}
"""The daemon before its first request."""
PACKAGES = 17
"""Packages of others that the daemon has loaded by then."""
LATER = {
    "fastapi": "the routes: server/app.py loads them with the first request that passes the gate",
    "mcp": "the protocol: server/mcp/endpoint.py loads it with the first request for it",
    "jinja2": "templates: base/text/templates.py loads it with the first one",
    "httpx2": "forges: plugins/forges/shared/http.py loads it with the first request to one",
    "rich": "structlog would draw with it: base/log_setup.py is to be imported before anything else that logs",
    "psycopg": "PostgreSQL: daemon/wiring.py loads it where one is configured",
    "websockets": "terminals and nodes: the server loads it when it serves",
    "prometheus_client": "figures: the route of /metrics loads it with the first request for them",
    "opentelemetry": "traces: daemon/__main__.py loads it where a receiver of them is named",
}
"""What the daemon has not loaded before its first request, and who is to load it."""
PARTS_LATER = (
    "server.routes",
    "server.route_table",
    "server.schema.models",
    "cluster.ray",
    "cluster.node.worker",
    "testing",
    "cli",
    "client.api",
)

ADVICE = "Import it where it is used, or under TYPE_CHECKING; if it is needed at once, write the new number down. Loaded:\n  "


def loaded(program: str) -> list[str]:
    """The modules that are loaded after it, without Python's own."""
    shown = f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    names = ran.stderr.strip().splitlines()[-1].split()
    tops = {name.split(".")[0] for name in names}
    others = {top for top in tops - sys.stdlib_module_names if not top.startswith("_") and "cython" not in top}
    return [name for name in names if name.split(".")[0] in others]


def packages(names: list[str]) -> Counter[str]:
    return Counter(name.split(".")[0] for name in names)


def within(allowed: dict[str, int], names: list[str]) -> None:
    """Fail where a package has more modules than that."""
    counts = packages(names)
    for package, most in allowed.items():
        listed = "\n  ".join(sorted(one for one in names if one.split(".")[0] == package))
        assert counts[package] <= most, (
            f"{package}: {counts[package]} modules, {most} were enough so far. {ADVICE}{listed}"
        )


def test_version() -> None:
    names = loaded("from agent_orchestrator.cli import main\nmain(['--version'])")
    more = set(packages(names)) - set(VERSION)
    assert not more, (
        f"{', '.join(more)}: a command loads nothing of others but click before it is known what it is about"
    )
    within(VERSION, names)


def test_daemon() -> None:
    names = loaded("import agent_orchestrator.daemon.__main__")
    counts = packages(names)
    for package, why in LATER.items():
        assert package not in counts, f"the daemon loads {package} before it is asked anything; {why}"
    for part in PARTS_LATER:
        name = f"agent_orchestrator.{part}"
        early = [one for one in names if one == name or one.startswith(f"{name}.")]
        assert not early, f"the daemon loads {', '.join(early)} before it is asked anything"
    within(DAEMON, names)
    assert len(counts) <= PACKAGES, f"{len(counts)} packages, and {PACKAGES} were enough so far: {sorted(counts)}"
