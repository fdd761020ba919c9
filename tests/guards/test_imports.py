"""The number of loaded modules, which is most of the cost of a command's start. Modules of Python itself differ between versions and
are not counted."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

VERSION = {"agent_orchestrator": 4, "click": 12}
"""`ao --version`: modules of each package. What `ao status` loads is counted in unit/cli/test_status.py."""
DAEMON = {"agent_orchestrator": 441, "sqlalchemy": 85, "pydantic": 50, "ruamel": 32, "uvicorn": 26, "starlette": 12}
"""Modules of the daemon before its first request."""
PACKAGES = 17
"""Third-party packages that the daemon has loaded by then."""
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
"""Packages that the daemon has not loaded before its first request, and where they are loaded."""
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


def loaded_modules(program: str) -> list[str]:
    """Return the modules that are loaded after a program has run, without Python's own."""
    script = f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)"
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names = completed.stderr.strip().splitlines()[-1].split()
    packages = {name.split(".")[0] for name in names}
    others = {top for top in packages - sys.stdlib_module_names if not top.startswith("_") and "cython" not in top}
    return [name for name in names if name.split(".")[0] in others]


def modules_per_package(names: list[str]) -> Counter[str]:
    return Counter(name.split(".")[0] for name in names)


def assert_within(allowed: dict[str, int], names: list[str]) -> None:
    """Assert that no package has more modules than allowed."""
    counts = modules_per_package(names)
    for package, maximum in allowed.items():
        listed = "\n  ".join(sorted(name for name in names if name.split(".")[0] == package))
        assert counts[package] <= maximum, (
            f"{package}: {counts[package]} modules, {maximum} were enough so far. {ADVICE}{listed}"
        )


def test_version_loads_few_modules() -> None:
    names = loaded_modules("from agent_orchestrator.cli import main\nmain(['--version'])")
    more = set(modules_per_package(names)) - set(VERSION)
    assert not more, (
        f"{', '.join(more)}: a command loads nothing of others but click before it is known what it is about"
    )
    assert_within(VERSION, names)


def test_the_daemon_loads_few_modules_before_its_first_request() -> None:
    names = loaded_modules("import agent_orchestrator.daemon.__main__")
    counts = modules_per_package(names)
    for package, reason in LATER.items():
        assert package not in counts, f"the daemon loads {package} before it is asked anything; {reason}"
    for part in PARTS_LATER:
        name = f"agent_orchestrator.{part}"
        early = [module for module in names if module == name or module.startswith(f"{name}.")]
        assert not early, f"the daemon loads {', '.join(early)} before it is asked anything"
    assert_within(DAEMON, names)
    assert len(counts) <= PACKAGES, f"{len(counts)} packages, and {PACKAGES} were enough so far: {sorted(counts)}"


def test_measuring_for_fixes_loads_no_configuration() -> None:
    """The program is started for each commit that is measured."""
    counts = modules_per_package(loaded_modules("import agent_orchestrator.fleet.fixes.measure"))
    assert not {"pydantic", "ruamel", "sqlalchemy"} & counts.keys(), ADVICE + "\n  ".join(counts)
