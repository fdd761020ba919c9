"""New packages for plugin authors: `ao plugins new` writes them from here.

`slots/` has a working plugin for each slot, one file each, as real code: it is linted and type-checked with everything else. `texts/` has
its tests, which run the slot's contract suite, and what makes a package of both. In all of them stand the names of an example
(`the-name`, `the_module`, `TheClass`), which are replaced. Nothing in here is imported by the package itself.
"""

from __future__ import annotations

import re
from pathlib import Path

SLOTS = ("runtime", "agent", "workspace", "tracker", "scm", "notifier", "terminal")
RESERVED = ("auto", "local", "none")
"""Names that mean something else in a configuration."""
LONGEST = 40
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_HERE = Path(__file__).parent
_USE = {
    "runtime": "defaults: {runtime: the-name}",
    "agent": "defaults: {agent: the-name}",
    "workspace": "defaults: {workspace: the-name}",
    "tracker": "defaults: {tracker: {plugin: the-name, file: issues.json}}",
    "scm": "defaults: {scm: {plugin: the-name, repository: /srv/git/app.git}}",
    "notifier": "notifiers: {the-name: {url: https://chat.example/hook}}\ndefaults: {notifiers: [the-name]}",
    "terminal": "defaults: {terminal: the-name}",
}
"""How a configuration names the plugin."""


def is_name(name: str) -> bool:
    """May a plugin be called so?"""
    return len(name) <= LONGEST and _NAME.fullmatch(name) is not None


def distribution(slot: str, name: str) -> str:
    """The package's name."""
    return f"ao-{slot}-{name}"


def usage(slot: str, name: str) -> str:
    """The lines of a configuration that put the plugin into use."""
    return _filled(_USE[slot], slot, name)


def files(slot: str, name: str) -> dict[str, str]:
    """The package: path → text."""
    module = distribution(slot, name).replace("-", "_")
    plugin = _filled(_read("slots", f"{slot}.py"), slot, name)
    return {
        "pyproject.toml": _filled(_read("texts", "pyproject.toml.txt"), slot, name),
        "README.md": _filled(_read("texts", "README.md.txt"), slot, name),
        f"{module}.py": plugin,
        "tests/conftest.py": _read("texts", "conftest.py.txt"),
        f"tests/test_{module}.py": _filled(_read("texts", f"test_{slot}.py.txt"), slot, name),
    }


def _read(*place: str) -> str:
    return _HERE.joinpath(*place).read_text(encoding="utf-8")


def _filled(text: str, slot: str, name: str) -> str:
    own = distribution(slot, name)
    replaced = {
        "The Usage": _USE[slot],
        "the-distribution": own,
        "the_module": own.replace("-", "_"),
        "TheClass": _class(slot, name),
        "the-slot": slot,
        "the-name": name,
    }
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


def _class(slot: str, name: str) -> str:
    """A name that is nobody else's: it ends with what it is."""
    words, kind = (
        "".join(word.capitalize() for word in name.split("-")),
        "Forge" if slot == "scm" else slot.capitalize(),
    )
    return words if words.endswith(kind) and words != kind else words + kind
