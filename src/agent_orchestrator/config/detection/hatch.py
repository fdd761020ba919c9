"""The environments of hatch: `hatch.toml` and `pyproject.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agent_orchestrator.config.detection.commands import Words, plain_words
from agent_orchestrator.config.detection.environments import Environment, flat_texts, requirements_of, settings
from agent_orchestrator.config.detection.files import Repository, table, texts


def environments(repo: Repository) -> Iterator[Environment]:
    """Yield the environments of hatch."""
    own = repo.toml("hatch.toml") if "hatch.toml" in repo.names else {}
    envs = table(own, "envs") or table(repo.pyproject, "tool", "hatch", "envs")
    source = "hatch.toml" if own else "pyproject.toml"
    default = table(envs, "default")
    for name in list(envs)[:40]:
        values = {**default, **table(envs, name)}
        template = values.get("template")
        if isinstance(template, str) and template != name:
            values = {**table(envs, template), **values}
        scripts = {**table(default, "scripts"), **table(values, "scripts")}
        ordered = sorted(
            scripts, key=lambda one: one not in ("test", "tests", "run", "unit", "pytest", "lint", "check")
        )
        yield Environment(
            source=source,
            name=name,
            extras=tuple(texts(values.get("features"))),
            groups=tuple(texts(values.get("dependency-groups"))),
            packages=tuple(
                requirements_of([*texts(values.get("dependencies")), *texts(values.get("extra-dependencies"))])
            ),
            commands=tuple(words for one in ordered for words in _words(scripts, one, 3)),
            env=tuple(
                settings([(key, value) for key, value in table(values, "env-vars").items() if isinstance(value, str)])
            ),
            installs_project=not (values.get("skip-install") or values.get("detached")),
        )


def _words(scripts: dict[str, Any], name: str, left: int) -> Iterator[Words]:
    for line in flat_texts(scripts.get(name)):
        words = plain_words(re.sub(r"\{args:?([^{}]*)\}", lambda m: m[1], line.lstrip("- ")).replace("{root}", "."))
        if words and words[0] in scripts and left and words[0] != name:
            yield from _words(scripts, words[0], left - 1)
        elif words:
            yield words
