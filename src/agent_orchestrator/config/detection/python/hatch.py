"""Read the environments of hatch from `hatch.toml` and `pyproject.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agent_orchestrator.config.detection.commands import Words, plain_words
from agent_orchestrator.config.detection.files import RepositoryFiles, strings_in, table
from agent_orchestrator.config.detection.python.environments import (
    Environment,
    flat_texts,
    requirements_of,
    test_variables,
)


def environments(repo: RepositoryFiles) -> Iterator[Environment]:
    """Yield the environments of hatch."""
    hatch_toml = repo.toml("hatch.toml") if "hatch.toml" in repo.top_level_names else {}
    envs = table(hatch_toml, "envs") or table(repo.pyproject, "tool", "hatch", "envs")
    source = "hatch.toml" if hatch_toml else "pyproject.toml"
    default = table(envs, "default")
    for name in list(envs)[:40]:
        values = {**default, **table(envs, name)}
        template = values.get("template")
        if isinstance(template, str) and template != name:
            values = {**table(envs, template), **values}
        scripts = {**table(default, "scripts"), **table(values, "scripts")}
        ordered = sorted(
            scripts, key=lambda script: script not in ("test", "tests", "run", "unit", "pytest", "lint", "check")
        )
        yield Environment(
            source=source,
            name=name,
            extras=tuple(strings_in(values.get("features"))),
            groups=tuple(strings_in(values.get("dependency-groups"))),
            packages=tuple(
                requirements_of(
                    [*strings_in(values.get("dependencies")), *strings_in(values.get("extra-dependencies"))]
                )
            ),
            commands=tuple(words for script in ordered for words in _script_commands(scripts, script, 3)),
            env=tuple(
                test_variables(
                    [(key, value) for key, value in table(values, "env-vars").items() if isinstance(value, str)]
                )
            ),
            installs_project=not (values.get("skip-install") or values.get("detached")),
        )


def _script_commands(scripts: dict[str, Any], name: str, depth: int) -> Iterator[Words]:
    for line in flat_texts(scripts.get(name)):
        words = plain_words(
            re.sub(r"\{args:?([^{}]*)\}", lambda match: match[1], line.lstrip("- ")).replace("{root}", ".")
        )
        if words and words[0] in scripts and depth and words[0] != name:
            yield from _script_commands(scripts, words[0], depth - 1)
        elif words:
            yield words
