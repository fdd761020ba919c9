"""The environments of tox: `tox.ini`, `setup.cfg`, `tox.toml` and `pyproject.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agent_orchestrator.config.detection.commands import Words, plain_words
from agent_orchestrator.config.detection.environments import Environment, flat_texts, requirements_of, settings
from agent_orchestrator.config.detection.files import Repository, parse_ini, table, texts


def environments(repo: Repository) -> list[Environment]:
    """Return the environments that tox runs, in the order in which it would."""
    return [*_ini(repo), *_toml(repo)]


def _ini(repo: Repository) -> Iterator[Environment]:
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
        listed = _expanded(main.get("envlist") or main.get("env_list") or "py")
        named = [name for section in sections if section.startswith("testenv:") for name in _expanded(section[8:])]
        for name in dict.fromkeys([*listed, *named][:80]):
            yield _ini_environment(sections, source, name)
        return


def _expanded(text: str) -> list[str]:
    """Return the names that a list such as `py{310,311}-{a,b}, lint` stands for."""
    names = [one for one in re.split(r",(?![^{]*\})|\s+(?![^{]*\})", text) if one]
    found: list[str] = []
    for name in names[:60]:
        waiting = [name]
        while waiting and len(found) < 200:
            one = waiting.pop(0)
            if match := re.search(r"\{([^{}]*)\}", one):
                waiting += [one[: match.start()] + part + one[match.end() :] for part in _alternatives(match[1])]
                waiting = waiting[:200]
            elif one:
                found.append(one)
    return found


def _alternatives(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        if match := re.fullmatch(r"\s*(\d{1,3})-(\d{1,3})\s*", part):
            found += [str(number) for number in range(int(match[1]), min(int(match[2]), int(match[1]) + 20) + 1)]
        else:
            found.append(part.strip())
    return found


def _ini_environment(sections: dict[str, dict[str, str]], source: str, name: str) -> Environment:
    factors = {*name.split("-"), *(_without_python(name))}
    values = dict(sections.get("testenv", {}))
    for section, own in sections.items():
        if section.startswith("testenv:") and name in _expanded(section[8:]):
            values |= own

    def lines(*keys: str) -> list[str]:
        value = next((values[key] for key in keys if key in values), "")
        held = "\n".join(_conditional(value, factors))
        return list(_conditional(_referred(sections, held), factors))

    deps = lines("deps")
    env = [
        (key.strip(), value.strip())
        for key, _, value in (one.partition("=") for one in lines("setenv", "set_env"))
        if value
    ]
    return Environment(
        source=source,
        name=name,
        extras=tuple(word for line in lines("extras") for word in re.split(r"[,\s]+", line) if word),
        groups=tuple(word for line in lines("dependency_groups") for word in re.split(r"[,\s]+", line) if word),
        files=tuple(_in_files(deps)),
        packages=tuple(requirements_of(deps)),
        commands=tuple(words for line in _joined(lines("commands")) if (words := _tox_words(line))),
        env=tuple(settings(env)),
        folder=_tox_path(values.get("changedir") or values.get("change_dir") or ""),
        installs_project=values.get("skip_install", "").strip().lower() not in ("true", "1", "yes"),
    )


def _without_python(name: str) -> list[str]:
    """Return the factors without those that name a Python; `py` stands for any."""
    return [*(one for one in name.split("-") if not re.fullmatch(r"py(py)?[\d.]*t?", one)), "py"]


def _referred(sections: dict[str, dict[str, str]], value: str) -> str:
    for _ in range(3):
        value = re.sub(
            r"\{\[([^\]{}]{1,80})\](\w{1,40})\}",
            lambda match: sections.get(match[1], {}).get(match[2], "")[:4000],
            value[:20_000],
        )
    return value


def _conditional(value: str, factors: set[str]) -> Iterator[str]:
    """Yield the lines of a value that hold for an environment with these factors."""
    for line in value.splitlines():
        text = re.sub(r"(^|\s)#.*$", "", line).strip()
        match = re.match(r"([!\w.{},-]+):\s+(.*)$", text)
        if match:
            if any(_holds(condition, factors) for condition in _expanded(match[1])):
                yield match[2].strip()
        elif text:
            yield text


def _holds(condition: str, factors: set[str]) -> bool:
    return all((part[1:] not in factors) if part.startswith("!") else part in factors for part in condition.split("-"))


def _joined(lines: list[str]) -> Iterator[str]:
    held = ""
    for line in lines:
        if line.endswith("\\"):
            held += line[:-1] + " "
        else:
            yield held + line
            held = ""
    if held:
        yield held


def _in_files(deps: list[str]) -> Iterator[str]:
    for one in deps:
        if match := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", one):
            path = _tox_path(match[1])
            if path and "{" not in path:
                yield path


def _tox_path(text: str) -> str:
    return re.sub(
        r"\{(?:tox_?ini_?dir|tox_?root|/)\}/?", lambda m: "/" if m[0] == "{/}" else "", text.strip()
    ).removeprefix("./")


def _tox_words(line: str) -> Words:
    """Return a command's words with tox's own names filled in; an unknown one stays, in braces."""
    text = line.lstrip("-! ").strip()
    for _ in range(4):
        text = re.sub(
            r"\{(?:tty|env:[A-Za-z_]\w*)?:?posargs?:?([^{}]*)\}|\{posargs:?([^{}]*)\}",
            lambda m: m[1] or m[2] or "",
            text,
        )
        text = re.sub(r"\{env:[A-Za-z_]\w*:([^{}]*)\}", lambda m: m[1], text)
        text = re.sub(r"\{tty:([^{}:]*):?([^{}:]*)\}", lambda m: m[2], text)
    text = text.replace("{posargs}", "").replace("{/}", "/").replace("{:}", ":")
    text = re.sub(r"\{(?:env_?python|py_impl)\}", "python", text)
    text = re.sub(r"\{(?:tox_?ini_?dir|tox_?root)\}", ".", text)
    return tuple(
        word.removeprefix("./") if word.startswith("./") and len(word) > 2 and not word.endswith(".py") else word
        for word in plain_words(text)
    )


def _toml(repo: Repository) -> Iterator[Environment]:
    own = repo.toml("tox.toml") if "tox.toml" in repo.names else {}
    source, data = ("tox.toml", own) if own else ("pyproject.toml", table(repo.pyproject, "tool", "tox"))
    base, envs = table(data, "env_run_base"), table(data, "env")
    if not base and not envs:
        return
    listed = texts(data.get("env_list")) or ["py"]
    for name in dict.fromkeys([*listed, *envs][:80]):
        values = {**base, **table(envs, name)}
        deps = flat_texts(values.get("deps"))
        commands = (
            [_toml_words(one) for one in values.get("commands", []) if isinstance(one, list)]
            if isinstance(values.get("commands"), list)
            else []
        )
        env = [(key, value) for key, value in table(values, "set_env").items() if isinstance(value, str)]
        yield Environment(
            source=source,
            name=name,
            extras=tuple(flat_texts(values.get("extras"))),
            groups=tuple(flat_texts(values.get("dependency_groups"))),
            files=tuple(_in_files(deps)),
            packages=tuple(requirements_of(deps)),
            commands=tuple(words for words in commands if words),
            env=tuple(settings(env)),
            folder=_tox_path(str(values.get("change_dir") or "")),
            installs_project=not values.get("skip_install"),
        )


def _toml_words(value: list[Any]) -> Words:
    words: list[str] = []
    for one in value:
        if isinstance(one, str):
            words += list(_tox_words(_word(one)))
        elif isinstance(one, dict) and one.get("replace") == "posargs":
            words += [word for text in texts(one.get("default")) for word in _tox_words(_word(text))]
    return tuple(words)


def _word(text: str) -> str:
    """Return one word, quoted where it has blanks."""
    return text if not re.search(r"[\s'\"\\]", text) else "'" + text.replace("'", "'\\''") + "'"
