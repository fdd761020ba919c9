"""Go, Rust and C projects, and other ecosystems by convention. Most need no set-up before their tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent_orchestrator.config.detection import makefile
from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import DetectedCommands, Words, join_words
from agent_orchestrator.config.detection.files import RepositoryFiles

CMAKE_TEST_COMMAND = "cmake -B build && cmake --build build && ctest --test-dir build --output-on-failure"
MESON_TEST_COMMAND = "meson setup build && meson test -C build --print-errorlogs"
_TEST_TARGETS = ("check", "test", "tests", "runtest", "runtests", "run-tests", "unittest", "testall")


def find_candidates(repo: RepositoryFiles, jobs: Sequence[CiJob]) -> Iterator[DetectedCommands]:
    """Yield the ways to test a compiled project, the most likely first."""
    if "go.mod" in repo.top_level_names:
        yield DetectedCommands(
            "go", test="go test -v ./...", lint=_lint_command(jobs, ("go", "vet")), evidence=("go.mod",)
        )
    if "Cargo.toml" in repo.top_level_names:
        test = _job_command(jobs, ("cargo", "test"))
        lint = " && ".join(
            command
            for command in (_lint_command(jobs, ("cargo", "fmt")), _lint_command(jobs, ("cargo", "clippy")))
            if command
        )
        yield DetectedCommands("cargo", test="cargo test", lint=lint or None, evidence=("Cargo.toml",))
        if test and test != "cargo test":
            yield DetectedCommands("cargo", test=test, lint=lint or None, evidence=("Cargo.toml",))
    if "CMakeLists.txt" in repo.top_level_names and _has_cmake_tests(repo):
        yield DetectedCommands("cmake", test=CMAKE_TEST_COMMAND, evidence=("CMakeLists.txt",))
    if "meson.build" in repo.top_level_names and _has_meson_tests(repo):
        yield DetectedCommands("meson", test=MESON_TEST_COMMAND, evidence=("meson.build",))
    yield from _make_ways(repo)
    yield from _conventional(repo)


def _job_command(jobs: Sequence[CiJob], start: Words) -> str | None:
    for job in jobs:
        for words in job.commands:
            if words[: len(start)] == start and not any(
                "{" in word or "$" in word or word.startswith("+") for word in words
            ):
                return join_words(words)
    return None


def _lint_command(jobs: Sequence[CiJob], start: Words) -> str | None:
    command = _job_command(jobs, start)
    return command if command and ("fmt" not in start or "--check" in command) else None


def _has_cmake_tests(repo: RepositoryFiles) -> bool:
    lists = ["CMakeLists.txt", *(name for name in repo.tree if name.endswith(("/CMakeLists.txt", ".cmake")))][:60]
    return any(
        re.search(
            r"^[ \t]*(?:add_test|catch_discover_tests|gtest_discover_tests|doctest_discover_tests)\s*\(",
            repo.text(name),
            re.MULTILINE | re.IGNORECASE,
        )
        for name in lists
    )


def _has_meson_tests(repo: RepositoryFiles) -> bool:
    builds = ["meson.build", *(name for name in repo.tree if name.endswith("/meson.build"))][:60]
    return any(re.search(r"^[ \t]*test[ \t]*\(", repo.text(name), re.MULTILINE) for name in builds)


def _make_ways(repo: RepositoryFiles) -> Iterator[DetectedCommands]:
    """Yield how a C project built by make is tested, after `configure` if there is one."""
    if not any(name.endswith((".c", ".cc", ".cpp", ".cxx", ".h", ".S", ".f90")) for name in repo.tree):
        return
    preparation = ""
    if "configure" in repo.top_level_names:
        preparation = "./configure && "
    elif repo.first_existing("configure.ac", "configure.in"):
        script = repo.first_existing("autogen.sh", "bootstrap", "bootstrap.sh", "buildconf")
        preparation = f"{f'./{script}' if script else 'autoreconf --install'} && ./configure && "
    text = makefile.read_makefile(repo) or repo.text("Makefile.in")
    if preparation and (
        repo.first_existing("Makefile.am") or re.search(r"^check:", repo.text("Makefile.in"), re.MULTILINE)
    ):
        yield DetectedCommands(
            "autotools",
            test=f"{preparation}make check",
            evidence=("configure",) if "configure" in repo.top_level_names else ("configure.ac",),
        )
    targets = makefile.targets(repo) | {
        name for name in _TEST_TARGETS if re.search(rf"^{name}[ \t]*:", text, re.MULTILINE)
    }
    name = next(
        (target for target in _TEST_TARGETS if target in targets and target != "check"),
        "check" if "check" in targets else None,
    )
    if name:
        yield DetectedCommands(
            "make",
            test=f"{preparation}make {name}",
            evidence=(repo.first_existing(*makefile.MAKEFILE_NAMES) or "Makefile.in",),
        )
        return
    programs = [target for target in sorted(targets) if re.fullmatch(r"[\w-]*[-_]?tests?", target)]
    if programs and not preparation:
        yield DetectedCommands(
            "make",
            test=f"make {programs[0]} && ./{programs[0]}",
            evidence=(repo.first_existing(*makefile.MAKEFILE_NAMES) or "Makefile",),
        )


_CONVENTIONS = (
    ("Gemfile", "bundler", ("bundle install",), None),
    ("composer.json", "composer", ("composer install",), None),
    ("mix.exs", "mix", ("mix deps.get",), "mix test"),
    ("gradlew", "gradle", (), "./gradlew test"),
    ("mvnw", "maven", (), "./mvnw -q test"),
    ("pom.xml", "maven", (), "mvn -q test"),
    ("deno.json", "deno", (), "deno test -A"),
    ("Package.swift", "swift", (), "swift test"),
    ("build.sbt", "sbt", (), "sbt test"),
    ("stack.yaml", "stack", (), "stack test"),
    ("dune-project", "dune", (), "dune test"),
)


def _conventional(repo: RepositoryFiles) -> Iterator[DetectedCommands]:
    """Yield what other ecosystems run by convention."""
    for name, ecosystem, set_up, test in _CONVENTIONS:
        if name not in repo.top_level_names:
            continue
        command = test
        if ecosystem == "bundler":
            command = (
                "bundle exec rspec"
                if "rspec" in repo.text("Gemfile") + repo.text("Gemfile.lock") or ".rspec" in repo.top_level_names
                else "bundle exec rake test"
            )
        elif ecosystem == "composer":
            scripts = repo.json("composer.json").get("scripts")
            command = "composer test" if isinstance(scripts, dict) and "test" in scripts else "vendor/bin/phpunit"
        yield DetectedCommands(ecosystem, set_up, command, None, (name,))
        return
