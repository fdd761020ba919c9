"""The test runners whose output is recorded: their commands, projects, and names of the three tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.unit.changes.checks import projects
from tests.unit.changes.checks.projects import Files


@dataclass(frozen=True)
class RecordedRunner:
    """A test runner with its project: `files(adds, subtracts)` makes it with these two tests in these states."""

    name: str
    command: str
    files: Callable[[str, str], Files]
    names: tuple[str, str, str]
    """Its names of the tests `adds`, `subtracts` and `upper`."""
    needs: str = ""
    """The name of the folder of tools that it needs."""
    more: Mapping[str, tuple[Files, str]] = field(default_factory=dict)
    """Further cases: files to change, and the command if it is another one."""
    names_passed: bool = True
    """Whether it names the tests that pass."""
    names_skipped: bool = True
    """Whether it names the tests that are skipped."""


def _quiet(name: str, command: str, like: RecordedRunner) -> RecordedRunner:
    """Return the same runner with options under which only failures are named."""
    return RecordedRunner(
        name, command, like.files, like.names, like.needs, like.more, names_passed=False, names_skipped=False
    )


def _like(name: str, command: str, like: RecordedRunner) -> RecordedRunner:
    return RecordedRunner(name, command, like.files, like.names, like.needs)


_PYTEST_NAMES = ("test_sums.py::test_adds", "test_sums.py::TestMore::test_subtracts", "test_words.py::test_upper[a b]")
_PYTEST = RecordedRunner(
    "pytest-v",
    "python -m pytest -v -p no:cacheprovider",
    projects.python,
    _PYTEST_NAMES,
    "py3.11",
    projects.PYTHON_MORE,
)
_JUNIT = "-o junit_family=xunit1 --junitxml=report.xml"
_UNITTEST_NAMES = ("test_sums.Sums.test_adds", "test_sums.Sums.test_subtracts", "test_words.Words.test_upper")
_UNITTEST = {
    version: RecordedRunner(
        f"unittest-{version}",
        "python -m unittest -v",
        projects.unittest,
        _UNITTEST_NAMES,
        f"py{version}",
        projects.UNITTEST_MORE,
    )
    for version in ("3.8", "3.11", "3.12", "3.13")
}
_DJANGO = RecordedRunner(
    "django",
    "python manage.py test -v 2",
    projects.django,
    ("shop.test_sums.Sums.test_adds", "shop.test_sums.Sums.test_subtracts", "shop.test_words.Words.test_upper"),
    "py3.11",
    projects.DJANGO_MORE,
)
_TITLES = ("sums > adds", "sums > subtracts it", "words > case > upper")
_NODE_FILES = projects.suites(projects.NODE_HEAD, projects.ASSERT)
_NODE_MORE = projects.node_more("js", projects.NODE_HEAD)
_NODE = RecordedRunner("node", "node --test --test-reporter=spec test", _NODE_FILES, _TITLES, "npm", _NODE_MORE)
_NODE_REPORT = (
    "node --test --test-reporter=junit --test-reporter-destination=report.xml --test-reporter=spec"
    " --test-reporter-destination=stdout test"
)
_MOCHA = RecordedRunner(
    "mocha", "mocha", projects.suites("", projects.ASSERT), _TITLES, "npm", projects.node_more("js")
)
_TAPE = RecordedRunner(
    "tape",
    "tape 'test/*.js'",
    projects.calls(
        projects.TAPE_HEAD,
        lambda text: text.replace("test(", "test.skip("),
        "test('NAME', (t) => { t.equal(ARGS); t.end(); });\n",
    ),
    ("adds", "subtracts it", "upper"),
    "npm",
    projects.call_more(projects.TAPE_HEAD),
    names_skipped=False,
)
_AVA = RecordedRunner(
    "ava",
    "ava",
    projects.calls(
        projects.AVA_HEAD,
        lambda text: text.replace("test(", "test.skip("),
        "test('NAME', (t) => { t.is(ARGS); });\n",
        "mjs",
    ),
    ("sums > adds", "sums > subtracts it", "words > upper"),
    "npm",
    projects.call_more(projects.AVA_HEAD, "mjs"),
)
_IN_FILES = (
    "test/sums.test.js > sums > adds",
    "test/sums.test.js > sums > subtracts it",
    "test/words.test.js > words > case > upper",
)
_EXPECTED = projects.suites("", projects.EXPECT)
_JEST = RecordedRunner("jest-verbose", "jest --verbose", _EXPECTED, _IN_FILES, "npm", projects.node_more("js"))
_JEST_REPORT = "JEST_JUNIT_OUTPUT_NAME=report.xml jest --reporters=default --reporters=jest-junit"
_VITEST = RecordedRunner(
    "vitest-verbose",
    "vitest run --globals --reporter=verbose",
    _EXPECTED,
    _IN_FILES,
    "npm",
    projects.node_more("js"),
)
_VITEST_REPORT = "vitest run --globals --reporter=default --reporter=junit --outputFile=report.xml"
_GO = RecordedRunner(
    "go-v",
    "go test -v ./...",
    projects.go,
    ("example.com/sums.TestAdds", "example.com/sums.TestSubtracts", "example.com/sums/words.TestUpper/one_word"),
    "",
    projects.GO_MORE,
)
_CARGO = RecordedRunner(
    "cargo",
    "cargo test --offline",
    projects.cargo,
    ("sums::tests::adds", "sums::tests::subtracts", "words::upper"),
    "",
    projects.CARGO_MORE,
)
_CARGO_Q = ("tests::adds", "tests::subtracts", "upper")
_CTEST = RecordedRunner(
    "ctest", projects.CTEST, projects.ctest, ("adds", "subtracts", "upper"), "", projects.CTEST_MORE
)
_PROVE_NAMES = ("t/sums.t > adds", "t/sums.t > subtracts it", "t/words.t")

RUNNERS = (
    _PYTEST,
    _quiet("pytest", "python -m pytest -p no:cacheprovider", _PYTEST),
    _quiet("pytest-q", "python -m pytest -q -p no:cacheprovider", _PYTEST),
    RecordedRunner(
        "pytest-junit",
        f"python -m pytest -q -p no:cacheprovider {_JUNIT}",
        projects.python,
        _PYTEST_NAMES,
        "py3.11",
        projects.PYTHON_MORE,
    ),
    RecordedRunner(
        "pytest-xdist",
        "python -m pytest -n 2 -p no:cacheprovider",
        projects.python,
        _PYTEST_NAMES,
        "py3.11",
        names_passed=False,
        names_skipped=False,
    ),
    *_UNITTEST.values(),
    _quiet("unittest", "python -m unittest", _UNITTEST["3.11"]),
    _DJANGO,
    _NODE,
    RecordedRunner("node-tap", "node --test --test-reporter=tap test", _NODE_FILES, _TITLES, "npm", _NODE_MORE),
    _like("node-junit", _NODE_REPORT, _NODE),
    _MOCHA,
    RecordedRunner(
        "mocha-dot", "mocha --reporter dot", _MOCHA.files, _TITLES, "npm", names_passed=False, names_skipped=False
    ),
    RecordedRunner(
        "mocha-min", "mocha --reporter min", _MOCHA.files, _TITLES, "npm", names_passed=False, names_skipped=False
    ),
    RecordedRunner(
        "mocha-xunit",
        "mocha --reporter xunit --reporter-option output=report.xml",
        _MOCHA.files,
        ("sums.adds", "sums.subtracts it", "words case.upper"),
        "npm",
    ),
    _TAPE,
    _AVA,
    RecordedRunner("ava-tap", "ava --tap", _AVA.files, _AVA.names, "npm", _AVA.more),
    _JEST,
    _quiet("jest", "jest", _JEST),
    RecordedRunner(
        "jest-junit", _JEST_REPORT, _EXPECTED, ("sums adds", "sums subtracts it", "words case upper"), "npm"
    ),
    _VITEST,
    _quiet("vitest", "vitest run --globals", _VITEST),
    _like("vitest-junit", _VITEST_REPORT, _VITEST),
    _GO,
    _quiet("go", "go test ./...", _GO),
    RecordedRunner("go-json", "go test -json ./...", projects.go, _GO.names, "", projects.GO_MORE),
    _CARGO,
    RecordedRunner(
        "cargo-q",
        "cargo test --offline -q",
        projects.cargo,
        _CARGO_Q,
        "",
        projects.CARGO_MORE,
        names_passed=False,
        names_skipped=False,
    ),
    _CTEST,
    RecordedRunner("ctest-out", f"{_CTEST.command} --output-on-failure", projects.ctest, _CTEST.names),
    _like("ctest-junit", f"{_CTEST.command} -Q --output-junit ../report.xml", _CTEST),
    RecordedRunner("meson", "meson setup build && meson test -C build", projects.meson, _CTEST.names),
    RecordedRunner("prove", "prove -r t", projects.prove, _PROVE_NAMES, names_passed=False, names_skipped=False),
    RecordedRunner("prove-v", "prove -v -r t", projects.prove, _PROVE_NAMES, names_passed=False, names_skipped=False),
)
"""All runners; neighbours with the same test names run the same project."""
