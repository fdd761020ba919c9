"""Read the environments of tox from `tox.ini`, `setup.cfg`, `tox.toml` and `pyproject.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agent_orchestrator.config.detection.commands import Words, plain_words
from agent_orchestrator.config.detection.files import RepositoryFiles, parse_ini, strings_in, table
from agent_orchestrator.config.detection.python.environments import (
    Environment,
    flat_texts,
    requirements_of,
    test_variables,
)


def environments(repo: RepositoryFiles) -> list[Environment]:
    """Return the environments that tox runs, in tox's order."""
    return [*_ini_environments(repo), *_toml_environments(repo)]


def _ini_environments(repo: RepositoryFiles) -> Iterator[Environment]:
    """Yield the environments of the first INI file that has some."""
    for source, text in (
        ("tox.ini", repo.text("tox.ini")),
        ("setup.cfg", repo.text("setup.cfg")),
        ("pyproject.toml", str(table(repo.pyproject, "tool", "tox").get("legacy_tox_ini") or "")),
    ):
        sections = parse_ini(text)
        main = sections.get("tox") or sections.get("tox:tox")
        if main is None and "testenv" not in sections:
            continue
        main = main or {}
        listed_names = _expand_names(main.get("envlist") or main.get("env_list") or "py")
        section_names = [
            name for section in sections if section.startswith("testenv:") for name in _expand_names(section[8:])
        ]
        for name in dict.fromkeys([*listed_names, *section_names][:80]):
            yield _ini_environment(sections, source, name)
        return


def _expand_names(text: str) -> list[str]:
    """Return the names that a list such as `py{310,311}-{a,b}, lint` stands for."""
    names = [pattern for pattern in re.split(r",(?![^{]*\})|\s+(?![^{]*\})", text) if pattern]
    expanded: list[str] = []
    for name in names[:60]:
        queue = [name]
        while queue and len(expanded) < 200:
            pattern = queue.pop(0)
            if match := re.search(r"\{([^{}]*)\}", pattern):
                queue += [pattern[: match.start()] + part + pattern[match.end() :] for part in _alternatives(match[1])]
                queue = queue[:200]
            elif pattern:
                expanded.append(pattern)
    return expanded


def _alternatives(text: str) -> list[str]:
    alternatives: list[str] = []
    for part in text.split(","):
        if match := re.fullmatch(r"\s*(\d{1,3})-(\d{1,3})\s*", part):
            alternatives += [str(number) for number in range(int(match[1]), min(int(match[2]), int(match[1]) + 20) + 1)]
        else:
            alternatives.append(part.strip())
    return alternatives


def _ini_environment(sections: dict[str, dict[str, str]], source: str, name: str) -> Environment:
    """Return one environment with the settings of its section and of `testenv`."""
    factors = {*name.split("-"), *(_without_python(name))}
    values = dict(sections.get("testenv", {}))
    for section, section_values in sections.items():
        if section.startswith("testenv:") and name in _expand_names(section[8:]):
            values |= section_values

    def lines(*keys: str) -> list[str]:
        value = next((values[key] for key in keys if key in values), "")
        conditional_text = "\n".join(_applicable_lines(value, factors))
        return list(_applicable_lines(_resolve_references(sections, conditional_text), factors))

    deps = lines("deps")
    env = [
        (key.strip(), value.strip())
        for key, _, value in (assignment.partition("=") for assignment in lines("setenv", "set_env"))
        if value
    ]
    return Environment(
        source=source,
        name=name,
        extras=tuple(word for line in lines("extras") for word in re.split(r"[,\s]+", line) if word),
        groups=tuple(word for line in lines("dependency_groups") for word in re.split(r"[,\s]+", line) if word),
        files=tuple(_requirements_files(deps)),
        packages=tuple(requirements_of(deps)),
        commands=tuple(words for line in _join_continued(lines("commands")) if (words := _tox_words(line))),
        env=tuple(test_variables(env)),
        folder=_tox_path(values.get("changedir") or values.get("change_dir") or ""),
        installs_project=values.get("skip_install", "").strip().lower() not in ("true", "1", "yes"),
    )


def _without_python(name: str) -> list[str]:
    """Return the factors except those that name a Python version; `py` stands for any."""
    return [*(factor for factor in name.split("-") if not re.fullmatch(r"py(py)?[\d.]*t?", factor)), "py"]


def _resolve_references(sections: dict[str, dict[str, str]], value: str) -> str:
    for _ in range(3):
        value = re.sub(
            r"\{\[([^\]{}]{1,80})\](\w{1,40})\}",
            lambda match: sections.get(match[1], {}).get(match[2], "")[:4000],
            value[:20_000],
        )
    return value


def _applicable_lines(value: str, factors: set[str]) -> Iterator[str]:
    """Yield the lines of a value that apply to an environment with these factors."""
    for line in value.splitlines():
        text = re.sub(r"(^|\s)#.*$", "", line).strip()
        match = re.match(r"([!\w.{},-]+):\s+(.*)$", text)
        if match:
            if any(_condition_applies(condition, factors) for condition in _expand_names(match[1])):
                yield match[2].strip()
        elif text:
            yield text


def _condition_applies(condition: str, factors: set[str]) -> bool:
    return all((part[1:] not in factors) if part.startswith("!") else part in factors for part in condition.split("-"))


def _join_continued(lines: list[str]) -> Iterator[str]:
    continued = ""
    for line in lines:
        if line.endswith("\\"):
            continued += line[:-1] + " "
        else:
            yield continued + line
            continued = ""
    if continued:
        yield continued


def _requirements_files(deps: list[str]) -> Iterator[str]:
    for dependency in deps:
        if match := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", dependency):
            path = _tox_path(match[1])
            if path and "{" not in path:
                yield path


def _tox_path(text: str) -> str:
    return re.sub(
        r"\{(?:tox_?ini_?dir|tox_?root|/)\}/?", lambda match: "/" if match[0] == "{/}" else "", text.strip()
    ).removeprefix("./")


def _tox_words(line: str) -> Words:
    """Return the words of a line of tox's `commands` with substitutions applied, without `./`; unknown ones stay, in braces."""
    text = line.lstrip("-! ").strip()
    for _ in range(4):
        text = re.sub(
            r"\{(?:tty|env:[A-Za-z_]\w*)?:?posargs?:?([^{}]*)\}|\{posargs:?([^{}]*)\}",
            lambda match: match[1] or match[2] or "",
            text,
        )
        text = re.sub(r"\{env:[A-Za-z_]\w*:([^{}]*)\}", lambda match: match[1], text)
        text = re.sub(r"\{tty:([^{}:]*):?([^{}:]*)\}", lambda match: match[2], text)
    text = text.replace("{posargs}", "").replace("{/}", "/").replace("{:}", ":")
    text = re.sub(r"\{(?:env_?python|py_impl)\}", "python", text)
    text = re.sub(r"\{(?:tox_?ini_?dir|tox_?root)\}", ".", text)
    return tuple(
        word.removeprefix("./") if word.startswith("./") and len(word) > 2 and not word.endswith(".py") else word
        for word in plain_words(text)
    )


def _toml_environments(repo: RepositoryFiles) -> Iterator[Environment]:
    """Yield the environments of `tox.toml`, or of `pyproject.toml`."""
    tox_toml = repo.toml("tox.toml") if "tox.toml" in repo.top_level_names else {}
    source, data = ("tox.toml", tox_toml) if tox_toml else ("pyproject.toml", table(repo.pyproject, "tool", "tox"))
    base, envs = table(data, "env_run_base"), table(data, "env")
    if not base and not envs:
        return
    listed_names = strings_in(data.get("env_list")) or ["py"]
    for name in dict.fromkeys([*listed_names, *envs][:80]):
        values = {**base, **table(envs, name)}
        deps = flat_texts(values.get("deps"))
        commands = (
            [_toml_words(command) for command in values.get("commands", []) if isinstance(command, list)]
            if isinstance(values.get("commands"), list)
            else []
        )
        env = [(key, value) for key, value in table(values, "set_env").items() if isinstance(value, str)]
        yield Environment(
            source=source,
            name=name,
            extras=tuple(flat_texts(values.get("extras"))),
            groups=tuple(flat_texts(values.get("dependency_groups"))),
            files=tuple(_requirements_files(deps)),
            packages=tuple(requirements_of(deps)),
            commands=tuple(words for words in commands if words),
            env=tuple(test_variables(env)),
            folder=_tox_path(str(values.get("change_dir") or "")),
            installs_project=not values.get("skip_install"),
        )


def _toml_words(value: list[Any]) -> Words:
    words: list[str] = []
    for part in value:
        if isinstance(part, str):
            words += list(_tox_words(_quote_word(part)))
        elif isinstance(part, dict) and part.get("replace") == "posargs":
            words += [word for text in strings_in(part.get("default")) for word in _tox_words(_quote_word(text))]
    return tuple(words)


def _quote_word(text: str) -> str:
    """Return one word, quoted if it contains whitespace or quotes."""
    return text if not re.search(r"[\s'\"\\]", text) else "'" + text.replace("'", "'\\''") + "'"
