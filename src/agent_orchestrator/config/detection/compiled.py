"""Go, Rust and C projects: their tests need no set-up of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent_orchestrator.config.detection import makefile
from agent_orchestrator.config.detection.ci_files import Job
from agent_orchestrator.config.detection.commands import Commands, Words, write
from agent_orchestrator.config.detection.files import Repository

CMAKE = "cmake -B build && cmake --build build && ctest --test-dir build --output-on-failure"
MESON = "meson setup build && meson test -C build --print-errorlogs"
_TEST_TARGETS = ("check", "test", "tests", "runtest", "runtests", "run-tests", "unittest", "testall")


def ways(repo: Repository, jobs: Sequence[Job]) -> Iterator[Commands]:
    """Yield the ways to test a compiled project, the most likely first."""
    if "go.mod" in repo.names:
        yield Commands("go", test="go test -v ./...", lint=_lint(jobs, ("go", "vet")), evidence=("go.mod",))
    if "Cargo.toml" in repo.names:
        test = _of_jobs(jobs, ("cargo", "test"))
        lint = " && ".join(one for one in (_lint(jobs, ("cargo", "fmt")), _lint(jobs, ("cargo", "clippy"))) if one)
        yield Commands("cargo", test="cargo test", lint=lint or None, evidence=("Cargo.toml",))
        if test and test != "cargo test":
            yield Commands("cargo", test=test, lint=lint or None, evidence=("Cargo.toml",))
    if "CMakeLists.txt" in repo.names and _cmake_tests(repo):
        yield Commands("cmake", test=CMAKE, evidence=("CMakeLists.txt",))
    if "meson.build" in repo.names and _meson_tests(repo):
        yield Commands("meson", test=MESON, evidence=("meson.build",))
    yield from _make(repo)
    yield from _others(repo)


def _of_jobs(jobs: Sequence[Job], start: Words) -> str | None:
    for job in jobs:
        for words in job.commands:
            if words[: len(start)] == start and not any(
                "{" in word or "$" in word or word.startswith("+") for word in words
            ):
                return write(words)
    return None


def _lint(jobs: Sequence[Job], start: Words) -> str | None:
    found = _of_jobs(jobs, start)
    return found if found and ("fmt" not in start or "--check" in found) else None


def _cmake_tests(repo: Repository) -> bool:
    lists = ["CMakeLists.txt", *(name for name in repo.tree if name.endswith(("/CMakeLists.txt", ".cmake")))][:60]
    return any(
        re.search(
            r"^[ \t]*(?:add_test|catch_discover_tests|gtest_discover_tests|doctest_discover_tests)\s*\(",
            repo.text(name),
            re.MULTILINE | re.IGNORECASE,
        )
        for name in lists
    )


def _meson_tests(repo: Repository) -> bool:
    builds = ["meson.build", *(name for name in repo.tree if name.endswith("/meson.build"))][:60]
    return any(re.search(r"^[ \t]*test[ \t]*\(", repo.text(name), re.MULTILINE) for name in builds)


def _make(repo: Repository) -> Iterator[Commands]:
    """Yield how a C project that make builds is tested: after `configure` where there is one."""
    if not any(name.endswith((".c", ".cc", ".cpp", ".cxx", ".h", ".S", ".f90")) for name in repo.tree):
        return
    prepared = ""
    if "configure" in repo.names:
        prepared = "./configure && "
    elif repo.has("configure.ac", "configure.in"):
        script = repo.has("autogen.sh", "bootstrap", "bootstrap.sh", "buildconf")
        prepared = f"{f'./{script}' if script else 'autoreconf --install'} && ./configure && "
    text = makefile.text(repo) or repo.text("Makefile.in")
    if prepared and (repo.has("Makefile.am") or re.search(r"^check:", repo.text("Makefile.in"), re.MULTILINE)):
        yield Commands(
            "autotools",
            test=f"{prepared}make check",
            evidence=("configure",) if "configure" in repo.names else ("configure.ac",),
        )
    found = makefile.targets(repo) | {
        name for name in _TEST_TARGETS if re.search(rf"^{name}[ \t]*:", text, re.MULTILINE)
    }
    name = next(
        (one for one in _TEST_TARGETS if one in found and one != "check"), "check" if "check" in found else None
    )
    if name:
        yield Commands("make", test=f"{prepared}make {name}", evidence=(repo.has(*makefile.NAMES) or "Makefile.in",))
        return
    programs = [one for one in sorted(found) if re.fullmatch(r"[\w-]*[-_]?tests?", one)]
    if programs and not prepared:
        yield Commands(
            "make", test=f"make {programs[0]} && ./{programs[0]}", evidence=(repo.has(*makefile.NAMES) or "Makefile",)
        )


_OTHERS = (
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


def _others(repo: Repository) -> Iterator[Commands]:
    """Yield what other ecosystems run by convention."""
    for name, ecosystem, set_up, test in _OTHERS:
        if name not in repo.names:
            continue
        command = test
        if ecosystem == "bundler":
            command = (
                "bundle exec rspec"
                if "rspec" in repo.text("Gemfile") + repo.text("Gemfile.lock") or ".rspec" in repo.names
                else "bundle exec rake test"
            )
        elif ecosystem == "composer":
            scripts = repo.json("composer.json").get("scripts")
            command = "composer test" if isinstance(scripts, dict) and "test" in scripts else "vendor/bin/phpunit"
        yield Commands(ecosystem, set_up, command, None, (name,))
        return
