"""Find the command that runs a Python project's tests: from its environments or CI, else from the style of its test files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.config.detection import makefile
from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import Words, split_commands, test_command
from agent_orchestrator.config.detection.files import RepositoryFiles, table
from agent_orchestrator.config.detection.python.environments import Environment

PYTEST_COMMAND: Words = ("python", "-m", "pytest")
_SETTINGS = (
    "tests/settings.py",
    "tests/test_settings.py",
    "tests/settings/__init__.py",
    "tests/django_settings.py",
    "test_settings.py",
    "test/settings.py",
)
_DJANGO_SETTING = re.compile(r"^(?:SECRET_KEY|INSTALLED_APPS|DATABASES)\b", re.MULTILINE)
"""A file named `settings.py` may be anything, so its content is checked."""
_MAX_READ_TESTS = 60
_SITE_PACKAGES_PATH = re.compile(r"\{env_?site_?packages_?dir\}/([\w./-]+)$")


@dataclass(frozen=True, slots=True)
class TestCommands:
    """How the tests are run."""

    commands: tuple[Words, ...]
    source: str
    environment: Environment | None = None
    job: CiJob | None = None
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables set for the commands."""

    @property
    def is_pytest(self) -> bool:
        """Whether pytest runs any of the commands."""
        return any(words[:3] == PYTEST_COMMAND for words in self.commands)


_SECONDARY_JOBS = re.compile(
    r"lint|style|flake8|docs?$|docs?-|mypy|typ(?:e|ing)|cover|min|lowest|oldest|dev$|main$|master|latest|nightly|pypy|bench|stress|random"
    r"|format|check|build|release|pre-?commit|codspeed|downstream|integration|isort|warnings|conformance|emscripten|wasm|mutat|fuzz|ruff|profile"
)


def find_tests(repo: RepositoryFiles, envs: Sequence[Environment], jobs: Sequence[CiJob]) -> TestCommands | None:
    """Return how the tests are run, or None if there are none."""
    tests = _detect_tests(repo, envs, jobs)
    if tests is None:
        return None
    environment_variables = tests.environment.env if tests.environment else ()
    return replace(tests, variables=tuple({**dict(_makefile_variables(repo)), **dict(environment_variables)}.items()))


def _makefile_variables(repo: RepositoryFiles) -> Iterator[tuple[str, str]]:
    """Yield the variables that `make test` sets for its only command, such as `TERM=unknown`."""
    commands = [words for line in makefile.recipe(repo, "test") for words in split_commands(line)]
    for words in commands if len(commands) == 1 and test_command(commands[0]) else ():
        for word in words:
            match = re.fullmatch(r"([A-Z_][A-Z0-9_]*)=([^$]*)", word)
            if match is None:
                return
            yield match[1], match[2]


def _detect_tests(repo: RepositoryFiles, envs: Sequence[Environment], jobs: Sequence[CiJob]) -> TestCommands | None:
    """Return how the tests are run, without environment variables: by environments, CI, scripts, else by the test files."""
    files = test_files(repo)
    env = _test_environment(envs)
    if env is not None and (commands := _test_commands(_resolve_paths(repo, words) for words in env.commands)):
        return TestCommands(_in_folder(repo, env, commands), env.source, env)
    job = next((job for job in jobs if any(test_command(words) for words in job.commands)), None)
    if job is not None and not job.has_services and not _SECONDARY_JOBS.search(job.name.lower()):
        return TestCommands(_test_commands(job.commands)[:1], job.file, job=job)
    for name in ("runtests.py", "run_tests.py", "tests/runtests.py", "test/runtests.py", "tests/run_tests.py"):
        if name in repo.top_level_names or ("/" in name and repo.text(name)):
            return TestCommands((("python", name),), name)
    if "manage.py" in repo.top_level_names and "django" in repo.text("manage.py") and not _mentions_pytest(repo):
        return TestCommands((("python", "manage.py", "test"),), "manage.py")
    if not files and not _configures_pytest(repo):
        return None
    if not _mentions_pytest(repo) and any("django.test" in repo.text(name) for name in files[:_MAX_READ_TESTS]):
        settings = next((name for name in _SETTINGS if _DJANGO_SETTING.search(repo.text(name))), None)
        if settings is not None:
            module = settings.removesuffix(".py").replace("/", ".")
            return TestCommands((("python", "-m", "django", "test", "--settings", module),), settings)
    if _mentions_pytest(repo) or not _all_unittest(repo, files):
        return TestCommands((PYTEST_COMMAND,), _pytest_source(repo, files))
    return TestCommands((_unittest_command(repo, files),), files[0])


def _test_environment(envs: Sequence[Environment]) -> Environment | None:
    """Return the environment that runs the tests; a special one, such as coverage or oldest versions, only if there is no other."""
    testing_environments = [env for env in envs if any(test_command(words) for words in env.commands)]
    main_environments = [env for env in testing_environments if not _SECONDARY_JOBS.search(env.name.lower())]
    nox_sessions = [
        env
        for env in main_environments
        if env.source == "noxfile.py" and env.name in ("tests", "test", "unit", "pytest", "unit_tests")
    ]
    return next(
        iter(nox_sessions or main_environments or [env for env in testing_environments if env.source != "noxfile.py"]),
        None,
    )


def _test_commands(commands: Iterable[Words]) -> tuple[Words, ...]:
    """Return the commands that test. Of several pytest commands only the first is kept."""
    test_commands = list(dict.fromkeys(test for words in commands if (test := test_command(words))))
    kinds: dict[Words, Words] = {}
    for words in test_commands:
        kinds.setdefault(words[:3] if words[:3] == PYTEST_COMMAND else words, words)
    return tuple(kinds.values())


def _in_folder(repo: RepositoryFiles, env: Environment, commands: tuple[Words, ...]) -> tuple[Words, ...]:
    """Return the commands as they are run from the top folder."""
    if not env.folder or env.folder in (".", "./"):
        return commands
    if "{" in env.folder or not repo.list_folder(
        env.folder
    ):  # the folder is created by the tool only, so relative paths in it mean nothing here
        return tuple(_with_known_paths(repo, words) if words[:3] == PYTEST_COMMAND else words for words in commands)
    return (("cd", env.folder), *commands)


def _resolve_paths(repo: RepositoryFiles, words: Words) -> Words:
    """Return a command in which installed packages of the project are replaced by their folders in the repository."""
    resolved = []
    for word in words:
        match = _SITE_PACKAGES_PATH.match(word)
        if match is None:
            resolved.append(word)
        elif path := next((candidate for candidate in (match[1], f"src/{match[1]}") if _exists(repo, candidate)), None):
            resolved.append(path)
    return tuple(resolved)


def _with_known_paths(repo: RepositoryFiles, words: Words) -> Words:
    """Return a pytest command with its options, and only those paths that exist in the repository."""
    known_words, follows_option = list(words[:3]), False
    for word in words[3:]:
        is_outside = "{" in word or word.startswith("..") or "=.." in word
        if not is_outside and (word.startswith("-") or follows_option or _exists(repo, word.partition("::")[0])):
            known_words.append(word)
        follows_option = word.startswith("-") and "=" not in word
    return tuple(known_words)


def _exists(repo: RepositoryFiles, path: str) -> bool:
    path = path.rstrip("/")
    if path.startswith("/") or ".." in path.split("/"):
        return False
    return path in repo.tree or bool(repo.list_folder(path))


def test_files(repo: RepositoryFiles) -> list[str]:
    """Return the files that have names of tests."""
    return [
        name
        for name in repo.tree
        if name.endswith(".py")
        and re.search(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?)\.py$", name)
        and "/fixtures/" not in name
    ]


def _mentions_pytest(repo: RepositoryFiles) -> bool:
    return _configures_pytest(repo) or bool(
        re.search(
            r"\bpytest\b",
            repo.text("pyproject.toml") + repo.text("setup.py") + repo.text("setup.cfg") + repo.text("tox.ini"),
        )
        or any(
            re.match(r"\s*pytest\b", line)
            for name in repo.top_level_names
            if "requirements" in name and name.endswith(".txt")
            for line in repo.text(name).splitlines()
        )
    )


def _configures_pytest(repo: RepositoryFiles) -> bool:
    return bool(
        table(repo.pyproject, "tool", "pytest")
        or repo.first_existing("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py")
        or "[tool:pytest]" in repo.text("setup.cfg")
        or re.search(r"^\[pytest\]", repo.text("tox.ini"), re.MULTILINE)
        or any(name.endswith("/conftest.py") for name in repo.tree)
    )


def _pytest_source(repo: RepositoryFiles, files: Sequence[str]) -> str:
    for name in ("pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini", "setup.py"):
        if "pytest" in repo.text(name):
            return name
    return files[0] if files else "conftest.py"


def _all_unittest(repo: RepositoryFiles, files: Sequence[str]) -> bool:
    """Return whether the test files are written for unittest, decided by the first of them."""
    test_texts = [text for name in files[:_MAX_READ_TESTS] if "def test" in (text := repo.text(name))]
    return bool(test_texts) and all(
        re.search(r"^[ \t]*(?:import unittest|from unittest)|TestCase\b", text, re.MULTILINE)
        and not re.search(r"^[ \t]*(?:import pytest|from pytest)|^def test", text, re.MULTILINE)
        for text in test_texts
    )


def _unittest_command(repo: RepositoryFiles, files: Sequence[str]) -> Words:
    """Return the command by which unittest finds the tests."""
    top_folders = {name.split("/", 1)[0] for name in files if "/" in name}
    pattern: Words = ()
    if not any(name.rpartition("/")[2].startswith("test") for name in files):
        pattern = ("-p", "*_test.py" if any(name.endswith("_test.py") for name in files) else "*tests.py")
    for folder in ("tests", "test"):
        if folder in top_folders and all(name.startswith(f"{folder}/") for name in files):
            top_option: Words = ("-t", ".") if f"{folder}/__init__.py" in repo.tree else ()
            return ("python", "-m", "unittest", "discover", "-s", folder, *top_option, *pattern)
    return ("python", "-m", "unittest", "discover", *pattern)


_PLUGINS = (
    (r"--(?:no-)?cov", "pytest-cov"),
    (r"(?:^|\s)-n[\s=]?(?:auto|logical|\d)|--numprocesses|--dist[= ]", "pytest-xdist"),
    (r"--timeout|^timeout\s*=", "pytest-timeout"),
    (r"asyncio_mode|asyncio_default|--asyncio-mode", "pytest-asyncio"),
    (r"DJANGO_SETTINGS_MODULE|--ds[= ]|django_find_project|--reuse-db|--nomigrations|--no-migrations", "pytest-django"),
    (r"--benchmark-", "pytest-benchmark"),
    (r"--reruns", "pytest-rerunfailures"),
    (r"--random-order", "pytest-random-order"),
    (r"--mypy|mypy_plugin", "pytest-mypy"),
    (r"--black\b", "pytest-black"),
    (r"--flake8\b", "pytest-flake8"),
    (r"--doctest-plus|doctest_plus", "pytest-doctestplus"),
    (r"--import-mode=nothing", ""),
    (r"--disable-socket|--allow-hosts", "pytest-socket"),
    (r"--strict-env|^env\s*=", "pytest-env"),
)


def used_pytest_plugins(repo: RepositoryFiles, commands: Iterable[Words]) -> list[str]:
    """Return the pytest plugins that its configuration and these commands use."""
    configured = table(repo.pyproject, "tool", "pytest", "ini_options") or table(repo.pyproject, "tool", "pytest")
    text = "\n".join([f"{key} = {value}" for key, value in configured.items()])
    for name, section in (("pytest.ini", "pytest"), ("setup.cfg", "tool:pytest"), ("tox.ini", "pytest")):
        text += "".join(f"\n{key} = {value}" for key, value in repo.ini(name).get(section, {}).items())
    text += "".join("\n" + " ".join(words) for words in commands if words[:3] == PYTEST_COMMAND)
    return [name for pattern, name in _PLUGINS if name and re.search(pattern, text[:20_000], re.MULTILINE)]


KNOWN_TEST_MODULES = {
    **{
        name: name
        for name in (
            "hypothesis",
            "freezegun",
            "mock",
            "parameterized",
            "responses",
            "pexpect",
            "trustme",
            "flaky",
            "sybil",
            "vcr",
        )
    },
    "vcr": "vcrpy",
    "requests_mock": "requests-mock",
    "pytest_mock": "pytest-mock",
    "factory": "factory-boy",
    "time_machine": "time-machine",
    "nose": "pynose",
    "ddt": "ddt",
    "testfixtures": "testfixtures",
    "httpbin": "httpbin",
    "pretend": "pretend",
    "faker": "Faker",
    "pyfakefs": "pyfakefs",
    "respx": "respx",
    "moto": "moto",
    "syrupy": "syrupy",
    "numpy": "numpy",
    "anyio": "anyio",
    "trio": "trio",
    "pytest_httpserver": "pytest-httpserver",
    "pytest_lazyfixture": "pytest-lazy-fixture",
}
"""Packages used only in tests, by the module that test files import. They are installed if the project does not declare them."""


def imported_test_packages(repo: RepositoryFiles, files: Sequence[str]) -> set[str]:
    """Return the packages for tests that test files and `conftest.py` import at module level."""
    packages: set[str] = set()
    own_modules = {
        name.split("/")[-1].removesuffix(".py")
        for name in (*repo.top_level_names, *(f"src/{folder}" for folder in repo.list_folder("src")))
    }
    conftests = [name for name in repo.tree if name.endswith("conftest.py")][:20]
    for name in [*files[:_MAX_READ_TESTS], *conftests]:
        for module in re.findall(r"^(?:import|from)\s+([A-Za-z_]\w*)", repo.text(name), re.MULTILINE):
            if module in KNOWN_TEST_MODULES and module not in own_modules:
                packages.add(KNOWN_TEST_MODULES[module])
        fixtures = re.search(
            r"def test\w*\([^)]*\b(mocker|requests_mock|benchmark|httpx_mock|httpserver|snapshot|faker|subtests|settings)\b",
            repo.text(name),
        )
        if fixtures and (
            package := {
                "mocker": "pytest-mock",
                "requests_mock": "requests-mock",
                "benchmark": "pytest-benchmark",
                "httpx_mock": "pytest-httpx",
                "httpserver": "pytest-httpserver",
            }.get(fixtures[1])
        ):
            packages.add(package)
        if re.search(r"@pytest\.mark\.asyncio", repo.text(name)):
            packages.add("pytest-asyncio")
    return packages
