"""What a Python project declares for its tests: extras, dependency groups and requirements files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from agent_orchestrator.config.detection.environments import requirements_of
from agent_orchestrator.config.detection.files import Repository, requirement_name, table, texts

MAX_INCLUDED = 20
TEST_NAMES = ("test", "tests", "testing", "test-all", "all-tests", "unittest", "unit", "pytest", "qa", "ci")
DEV_NAMES = ("dev", "develop", "development", "devel", "all-dev", "dev-all")
_TEST_FILE = re.compile(r"(?:^|[-_./])(?:tests?|testing|pytest|unittest)(?:[-_./]|$)")
_DEV_FILE = re.compile(r"(?:^|[-_./])(?:dev|devel|develop|development|local|ci|all)(?:[-_./]|$)")
_OTHER_FILE = re.compile(
    r"doc|lint|build|publish|release|example|constraint|mypy|typ(?:es|ing)|min|lowest|oldest|bench|style|format"
)


def normal(name: str) -> str:
    """Return the name of an extra or group as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def extras(repo: Repository) -> dict[str, list[str]]:
    """Return the extras that a project declares, with their requirements as far as they can be read."""
    project = table(repo.pyproject, "project", "optional-dependencies")
    found = {name: texts(value) for name, value in project.items()}
    poetry = table(repo.pyproject, "tool", "poetry", "extras")
    found |= {name: texts(value) for name, value in poetry.items()}
    for name, lines in repo.ini("setup.cfg").get("options.extras_require", {}).items():
        found.setdefault(name, [line.strip() for line in lines.splitlines() if line.strip()])
    for name, listed in _called_extras(repo.text("setup.py")):
        found.setdefault(name, listed)
    return found


def _called_extras(setup: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the extras that `setup.py` writes as literals."""
    match = re.search(r"extras_require\s*=\s*\{(.{0,6000})", setup, re.DOTALL) or re.search(
        r"^\w*extras?\w*\s*=\s*\{(.{0,6000})", setup, re.DOTALL | re.MULTILINE | re.IGNORECASE
    )
    if match:
        body = match[1].split("\n}", 1)[0]
        for name, listed in re.findall(r"[\"']([\w.-]{1,60})[\"']\s*:\s*[\[(]([^\])]*)[\])]", body):
            yield name, re.findall(r"[\"']([^\"'\n]{1,200})[\"']", listed)
        for name in re.findall(r"[\"']([\w.-]{1,60})[\"']\s*:\s*[A-Za-z_]", body):
            yield name, []


def groups(repo: Repository) -> dict[str, list[str]]:
    """Return the dependency groups that a project declares, with their requirements and those of the groups that they include."""
    declared = table(repo.pyproject, "dependency-groups")

    def expand(name: str, left: int) -> list[str]:
        value = declared.get(name)
        if not isinstance(value, list) or left == 0:
            return []
        found = texts(value)
        included = [one.get("include-group") for one in value if isinstance(one, dict)]
        return found + [text for one in included if isinstance(one, str) for text in expand(one, left - 1)[:200]]

    return {name: expand(name, 4) for name in list(declared)[:60]}


def poetry_groups(repo: Repository) -> dict[str, list[str]]:
    """Return Poetry's groups with the names of their packages; the old `dev-dependencies` as `dev`."""
    poetry = table(repo.pyproject, "tool", "poetry")
    found = {name: list(table(value, "dependencies")) for name, value in table(poetry, "group").items()}
    if "dev-dependencies" in poetry:
        found.setdefault("dev", list(table(poetry, "dev-dependencies")))
    return found


def files(repo: Repository) -> list[str]:
    """Return the requirements files for tests, the most particular first."""
    found = [
        name
        for name in repo.tree
        if name.count("/") < 3
        and name.endswith((".txt", ".in", ".pip"))
        and "requirement" in name
        and not _OTHER_FILE.search(name)
    ]
    tests = [name for name in found if _TEST_FILE.search(name)]
    dev = [name for name in found if name not in tests and _DEV_FILE.search(name)]
    return [one for many in (tests, dev) for one in sorted(many, key=lambda name: not name.endswith(".txt"))][:20]


def tool_requirements(repo: Repository) -> list[str]:
    """Return the requirements for tests that are written for Poetry, PDM, uv or setuptools alone, as pip reads them."""
    groups = {name: texts(value) for name, value in table(repo.pyproject, "tool", "pdm", "dev-dependencies").items()}
    groups["uv"] = texts(table(repo.pyproject, "tool", "uv").get("dev-dependencies"))
    poetry = table(repo.pyproject, "tool", "poetry")
    written = {name: table(value, "dependencies") for name, value in table(poetry, "group").items()}
    written["dev-dependencies"] = table(poetry, "dev-dependencies")
    groups |= {
        f"poetry {name}": [one for key, value in group.items() for one in _of_poetry(key, value)]
        for name, group in written.items()
    }
    wanted = [
        one
        for name, group in groups.items()
        if normal(name.removeprefix("poetry ")) in TEST_NAMES or runs_tests(names(group))
        for one in group
    ]
    return list(dict.fromkeys([*wanted, *_tests_require(repo)]))


def _tests_require(repo: Repository) -> list[str]:
    """Return what `tests_require` names, in `setup.py` as far as it is written as literals."""
    found = repo.ini("setup.cfg").get("options", {}).get("tests_require", "").splitlines()
    match = re.search(r"\btests?_requires?\w*\s*=\s*[\[(]([^\])]{0,4000})", repo.text("setup.py"), re.IGNORECASE)
    found += re.findall(r"[\"']([^\"'\n]{1,200})[\"']", match[1]) if match else []
    return list(requirements_of(found))


def _of_poetry(name: str, value: object) -> Iterator[str]:
    """Yield a dependency as Poetry writes it, as a requirement; none where it is a path or a repository."""
    if isinstance(value, list):
        value = value[0] if value else None
    options = value if isinstance(value, dict) else {"version": value}
    version = options.get("version")
    if not isinstance(version, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or "||" in version:
        return
    extras = ",".join(texts(options.get("extras")))
    bounds = ",".join(bound for part in version.split(",") for bound in _bounds(part.strip()))
    marker = options.get("markers")
    yield name + (f"[{extras}]" if extras else "") + bounds + (f"; {marker}" if isinstance(marker, str) else "")


def _bounds(version: str) -> Iterator[str]:
    """Yield what pip writes for `^1.2`, `~1.2`, `1.2`, `*` and the comparisons."""
    match = re.fullmatch(r"([\^~]?)\s*(\d+(?:\.\d+)*)", version)
    if match is None:
        if re.match(r"[<>=!~]", version):
            yield version.replace(" ", "")
        elif version.endswith(".*"):
            yield f"=={version}"
        return
    parts = [int(part) for part in match[2].split(".")][:6]
    if not match[1]:
        yield f"=={match[2]}"
        return
    at = (
        next((place for place, part in enumerate(parts) if part), len(parts) - 1)
        if match[1] == "^"
        else min(1, len(parts) - 1)
    )
    yield f">={match[2]}"
    yield "<" + ".".join(map(str, [*parts[:at], parts[at] + 1]))


def names_in_file(repo: Repository, name: str) -> set[str]:
    """Return the names of the packages in a requirements file and those that it includes."""
    found: set[str] = set()
    waiting = [name]
    for one in waiting:
        for line in repo.text(one).splitlines()[:500]:
            if match := re.match(r"\s*(?:-r|--requirement)[\s=]*([^\s#]+)", line):
                other = posixpath.normpath(posixpath.join(posixpath.dirname(one), match[1]))
                if other not in waiting and len(waiting) < MAX_INCLUDED:
                    waiting.append(other)
            elif package := requirement_name(line):
                found.add(package)
    return found


def names(requirements: Iterable[str]) -> set[str]:
    """Return the names of requirements."""
    return {name for one in requirements if (name := requirement_name(one))}


def runs_tests(found: set[str]) -> bool:
    """Return whether a test runner is among these packages."""
    return bool(found & {"pytest", "nose2", "ward", "twisted", "zope-testrunner", "stestr"}) or any(
        one.startswith("pytest-") for one in found
    )
