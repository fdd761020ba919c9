"""JavaScript and TypeScript projects: the package manager by its lock file, and what the scripts run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import DetectedCommands, join_words
from agent_orchestrator.config.detection.files import RepositoryFiles, table

_MANAGERS_BY_LOCK = (
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun"),
    ("bun.lockb", "bun"),
    ("package-lock.json", "npm"),
    ("npm-shrinkwrap.json", "npm"),
)
_NARROWER_SCRIPTS = (
    "test:unit",
    "test:node",
    "test:spec",
    "tests-only",
    "unit",
    "test:run",
    "test:src",
    "test:only",
    "test:js",
    "test:ci",
    "test-ci",
    "spec",
    "vitest",
    "jest",
    "mocha",
)
_RUNNERS = (
    ("vitest", "npx vitest run"),
    ("jest", "npx jest"),
    ("mocha", "npx mocha"),
    ("ava", "npx ava"),
    ("tap", "npx tap"),
    ("uvu", "npx uvu"),
    ("jasmine", "npx jasmine"),
)
CHORES = ("lint", "format", "fmt", "typecheck", "types", "check", "build")
"""Names of scripts and Makefile targets that agents may run."""
_LINTERS = re.compile(r"\b(?:eslint|standard|xo|oxlint|biome|tslint|semistandard|ts-standard|lint)\b")
_CHANGES_FILES = re.compile(r"--fix\b|--write\b|(?:^|[\s:])fix\b")


@dataclass(frozen=True, slots=True)
class PackageManager:
    """A package manager and how it is called."""

    name: str
    lock: str | None
    version: str = ""

    def install(self) -> str:
        """Return the command that installs what the lock file lists, or without one, what `package.json` lists."""
        if self.lock is None:
            return f"{self.name} install"
        return {
            "pnpm": "pnpm install --frozen-lockfile",
            "yarn": "yarn install --frozen-lockfile" if self.is_yarn_1 else "yarn install --immutable",
            "bun": "bun install --frozen-lockfile",
            "npm": "npm ci",
        }[self.name]

    @property
    def is_yarn_1(self) -> bool:
        """Whether the lock file is one of Yarn 1."""
        return self.name == "yarn" and self.version.startswith("1")

    def run(self, script: str) -> str:
        """Return the command that runs a script of the package."""
        if script == "test" and self.name != "bun":
            return f"{self.name} test"
        return join_words([self.name, "run", script])

    def npx_command(self) -> str | None:
        """Return the command that runs the manager through npx if it is not installed; None for npm."""
        version = self.version if re.fullmatch(r"\d+(\.\d+){0,2}", self.version) else ""
        if self.name == "npm":
            return None
        if self.name == "yarn" and not self.is_yarn_1:
            return f"npx --yes --package @yarnpkg/cli-dist@{version or '4'} yarn"
        return (
            f"npx --yes {self.name}@{version}"
            if version
            else f"npx --yes {self.name}@{'1' if self.name == 'yarn' else 'latest'}"
        )


def find_package_manager(repo: RepositoryFiles) -> PackageManager:
    """Return the package manager that a repository uses."""
    declared = repo.package_json.get("packageManager")
    match = re.match(r"(npm|pnpm|yarn|bun)@(\d+(?:\.\d+){0,2})", declared) if isinstance(declared, str) else None
    locks = [(lock, name) for lock, name in _MANAGERS_BY_LOCK if lock in repo.top_level_names]
    if match and any(name == match[1] for _, name in locks):
        lock = next(lock for lock, name in locks if name == match[1])
        return PackageManager(match[1], lock, match[2])
    if not locks:
        return PackageManager(match[1], None, match[2]) if match else PackageManager("npm", None)
    lock, name = locks[0]
    return PackageManager(name, lock, _locked_version(repo, lock, name))


def _locked_version(repo: RepositoryFiles, lock: str, name: str) -> str:
    """Return the version of the manager that wrote a lock file, or "" if the file does not say."""
    head = repo.text(lock)[:2000]
    if name == "yarn":
        return "1" if "yarn lockfile v1" in head else ""
    if name == "pnpm" and (match := re.search(r"lockfileVersion:\s*'?(\d+)", head)):
        return {"5": "7", "6": "8", "9": "10"}.get(match[1], "")
    return ""


def find_candidates(repo: RepositoryFiles, jobs: Sequence[CiJob]) -> Iterator[DetectedCommands]:
    """Yield the ways to set up a package and to test it, the most likely first."""
    if "package.json" not in repo.top_level_names or not repo.package_json:
        return
    package = _Package(repo, find_package_manager(repo), jobs)
    tests = package.test_commands()
    set_up = package.set_up()
    lint = package.lint()
    evidence = tuple(name for name in (package.manager.lock, "package.json") if name)
    first = tests[0] if tests else None
    yield DetectedCommands(package.manager.name, set_up, first, lint, evidence)
    if npx_command := package.manager.npx_command():
        name = package.manager.name

        def with_npx(command: str | None) -> str | None:
            return re.sub(rf"(?<![\w/@-]){name}(?= )", npx_command, command) if command else None

        yield DetectedCommands(
            name,
            tuple(with_npx(set_up_command) or set_up_command for set_up_command in set_up),
            with_npx(first),
            with_npx(lint),
            evidence,
        )
        for test in tests[1:3]:
            yield DetectedCommands(
                name,
                tuple(with_npx(set_up_command) or set_up_command for set_up_command in set_up),
                with_npx(test),
                with_npx(lint),
                evidence,
            )
    for test in tests[1:4]:
        yield DetectedCommands(package.manager.name, set_up, test, lint, evidence)
    if package.manager.is_yarn_1:
        yield DetectedCommands(
            "yarn", tuple(f"{set_up_command} --ignore-engines" for set_up_command in set_up), first, lint, evidence
        )
    if package.manager.lock is not None:
        for test in tests[:2]:
            yield DetectedCommands(
                "npm",
                ("npm install",),
                PackageManager("npm", None).run("test") if test == package.manager.run("test") else test,
                None,
                ("package.json",),
            )


class _Package:
    """The top folder's package."""

    def __init__(self, repo: RepositoryFiles, manager: PackageManager, jobs: Sequence[CiJob]) -> None:
        self.repo = repo
        self.manager = manager
        self.jobs = [
            job
            for job in jobs
            if any(words[0] in ("npm", "pnpm", "yarn", "bun", "npx", "node") for words in job.commands)
        ]
        self.scripts = {
            name: script for name, script in table(repo.package_json, "scripts").items() if isinstance(script, str)
        }
        self.packages = {*table(repo.package_json, "dependencies"), *table(repo.package_json, "devDependencies")}

    def set_up(self) -> tuple[str, ...]:
        """Return the command that installs the package, or none if there is nothing to install."""
        needed = (
            self.packages
            or self.repo.package_json.get("workspaces")
            or table(self.repo.package_json, "optionalDependencies")
        )
        if not needed and self.manager.lock is None and "pnpm-workspace.yaml" not in self.repo.top_level_names:
            return ()
        command = self.manager.install()
        return (command + self._install_options(command),)

    def _install_options(self, command: str) -> str:
        """Return the options that CI passes to `npm ci` or `npm install` because dependencies do not resolve without them."""
        for job in self.jobs:
            for words in job.commands:
                if words[:2] in (("npm", "ci"), ("npm", "install"), ("npm", "i")) and command.startswith("npm"):
                    return "".join(f" {option}" for option in words[2:] if option in ("--legacy-peer-deps", "--force"))
        return ""

    # -- tests

    def test_commands(self) -> list[str]:
        """Return the commands that run the tests, the most likely first, or none."""
        script_commands = []
        script = self.scripts.get("test", "")
        if script and not _is_placeholder(script):
            script_commands += self._commands_of_script(script)
        narrower_scripts = [
            name for name in _NARROWER_SCRIPTS if name in self.scripts and not _is_watching(self.scripts[name])
        ]
        narrower_commands = [self._after_build(self.manager.run(name)) for name in narrower_scripts]
        runner_commands = [
            command for name, command in _RUNNERS if name in self.packages and (script or self._has_tests())
        ][:1]
        if "tape" in self.packages and not script_commands and not narrower_commands:
            runner_commands.append(f"npx tape {self._tape_files()}")
        if not script_commands and not narrower_commands and not runner_commands and self._uses_node_test():
            runner_commands.append("node --test")
        if (
            not script_commands
            and not narrower_commands
            and not runner_commands
            and self.manager.name == "bun"
            and self._has_tests()
        ):
            runner_commands.append("bun test")
        if (
            not script
            and not narrower_commands
            and not runner_commands
            and not script_commands
            and self._typescript_node_test()
        ):
            runner_commands.append("npx tsx --test")
        return list(dict.fromkeys([*script_commands, *narrower_commands, *map(self._after_build, runner_commands)]))

    def _commands_of_script(self, script: str) -> list[str]:
        if single_run := _single_run(script):
            return [self._after_build(single_run)]
        test_command = self.manager.run("test")
        delegated = re.fullmatch(r"(?:npm|pnpm|yarn|bun) (?:run )?([\w:.-]+)", script.strip())
        hook = self.scripts.get("posttest", "") + self.scripts.get("pretest", "")
        if delegated and delegated[1] in self.scripts and re.search(r"\baudit\b", hook):
            return [
                self._after_build(self.manager.run(delegated[1])),
                test_command,
            ]  # the result of an audit depends on the registry, not on the change
        built_command = self._after_build(test_command)
        return [built_command] if built_command != test_command else [test_command, *self._build_first(test_command)]

    def _after_build(self, test: str) -> str:
        """Return a test command, preceded by the build if the tests need built files."""
        return next(iter(self._build_first(test)), test) if self._tests_need_build() else test

    def _build_first(self, test: str) -> list[str]:
        build = next((name for name in ("build", "compile") if name in self.scripts), None)
        hooks = " ".join(self.scripts.get(name, "") for name in ("pretest", "test"))
        if build is None or re.search(rf"\b(?:run )?{build}\b|\btsc\b", hooks):
            return []
        return [f"{self.manager.run(build)} && {test}"]

    def _tests_need_build(self) -> bool:
        """Return whether tests import from a built folder that Git ignores."""
        main = json.dumps([self.repo.package_json.get(key) for key in ("main", "module", "exports", "bin")])
        folders = set(re.findall(r"\"(?:\./)?([\w-]+)/", main))
        ignored = {line.strip().strip("/") for line in self.repo.text(".gitignore").splitlines()}
        built_folders = folders & ignored
        if not built_folders:
            return False
        pattern = "|".join(map(re.escape, sorted(built_folders)))
        imports = re.compile(
            rf"""(?:from|require\(|import\(?)\s*['"](?:(?:\.\./)+(?:{pattern})[/'"]|\.\.?/?['"]|(?:\.\./)+['"]|{re.escape(str(self.repo.package_json.get("name")))}['"/])"""
        )
        return any(imports.search(self.repo.text(name)) for name in self._test_files()[:40])

    def _test_files(self) -> list[str]:
        return [
            name
            for name in self.repo.tree
            if re.search(
                r"(?:(?:^|/)(?:tests?|__tests__|spec)/.*|(?:^|/)tests?|[._-](?:test|spec))\.[cm]?[jt]sx?$", name
            )
        ]

    def _has_tests(self) -> bool:
        return bool(self._test_files())

    def _uses_node_test(self) -> bool:
        return any(
            re.search(r"""['"]node:test['"]""", self.repo.text(name))
            for name in self._test_files()[:40]
            if not name.endswith(("ts", "tsx"))
        )

    def _typescript_node_test(self) -> bool:
        return "tsx" in self.packages and any("node:test" in self.repo.text(name) for name in self._test_files()[:40])

    def _tape_files(self) -> str:
        return (
            "'test/**/*.js'"
            if self.repo.list_folder("test")
            else "test.js"
            if "test.js" in self.repo.top_level_names
            else "'**/*.test.js'"
        )

    # -- lint

    def lint(self) -> str | None:
        """Return the package's own lint script, if it changes no file and the tests do not already run it."""
        tests = " ".join(self.scripts.get(name, "") for name in ("pretest", "test", "posttest"))
        if _LINTERS.search(tests):
            return None
        for name in ("lint", "lint:check", "check:lint", "lint:ci", "lint:js", "eslint", "standard", "lint:eslint"):
            script = self.scripts.get(name)
            if script and not _CHANGES_FILES.search(script):
                return self.manager.run(name)
        return None


def _is_placeholder(script: str) -> bool:
    return "no test specified" in script or bool(
        re.fullmatch(r"\s*(?:echo\b[^&|;]*(?:&&\s*exit \d+)?|exit \d|true|:)?\s*", script)
    )


def _is_watching(script: str) -> bool:
    return bool(re.search(r"--watch(?:All)?\b(?!=false)|\bwatch\b", script))


def _single_run(script: str) -> str | None:
    """Return the single-run command of a script's runner if the script watches for changes; None if it does not watch."""
    if not _is_watching(script):
        return None
    for name, command in (
        ("vitest", "npx vitest run"),
        ("jest", "npx jest"),
        ("mocha", "npx mocha"),
        ("ava", "npx ava"),
        ("react-scripts", "npx react-scripts test --watchAll=false"),
    ):
        if re.search(rf"\b{name}\b", script):
            return command
    return "node --test" if re.search(r"\bnode\b.*--test", script) else None


def chore_commands(repo: RepositoryFiles) -> list[str]:
    """Return the scripts that lint, format and build, as commands."""
    scripts = table(repo.package_json, "scripts")
    package_manager = find_package_manager(repo)
    return [join_words([package_manager.name, "run", name]) for name in CHORES if isinstance(scripts.get(name), str)]
