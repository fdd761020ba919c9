"""Packages for new plugins, which `ao plugins new` writes.

`slots/` has a working plugin for each slot, one file each, as real code: it is linted and type-checked like everything
else. `texts/` has its tests, which run the slot's contract suite, and the files of the package. All of them contain
example names (`the-name`, `the_module`, `TheClass`), which are replaced. Nothing in here is imported by the package
itself.
"""

from __future__ import annotations

import re
from pathlib import Path

SLOTS = ("runtime", "agent", "workspace", "tracker", "scm", "notifier", "terminal")
RESERVED = ("auto", "local", "none")
"""Names that mean something else in a configuration."""
MAX_NAME_LENGTH = 40
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FOLDER = Path(__file__).parent
_USAGE_LINES = {
    "runtime": "defaults: {runtime: the-name}",
    "agent": "defaults: {agent: the-name}",
    "workspace": "defaults: {workspace: the-name}",
    "tracker": "defaults: {tracker: {plugin: the-name, file: issues.json}}",
    "scm": "defaults: {scm: {plugin: the-name, repository: /srv/git/app.git}}",
    "notifier": "notifiers: {the-name: {url: https://chat.example/hook}}\ndefaults: {notifiers: [the-name]}",
    "terminal": "defaults: {terminal: the-name}",
}
"""The configuration that uses the plugin, by slot."""


def is_name(name: str) -> bool:
    """Return whether a plugin may have this name."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def distribution(slot: str, name: str) -> str:
    """Return the package's name."""
    return f"ao-{slot}-{name}"


def usage(slot: str, name: str) -> str:
    """Return the lines of a configuration that use the plugin."""
    return _fill_in(_USAGE_LINES[slot], slot, name)


def files(slot: str, name: str) -> dict[str, str]:
    """Return the package's files: path → text."""
    module = distribution(slot, name).replace("-", "_")
    plugin = _fill_in(_read("slots", f"{slot}.py"), slot, name)
    return {
        "pyproject.toml": _fill_in(_read("texts", "pyproject.toml.txt"), slot, name),
        "README.md": _fill_in(_read("texts", "README.md.txt"), slot, name),
        f"{module}.py": plugin,
        "tests/conftest.py": _read("texts", "conftest.py.txt"),
        f"tests/test_{module}.py": _fill_in(_read("texts", f"test_{slot}.py.txt"), slot, name),
    }


def _read(*place: str) -> str:
    return _FOLDER.joinpath(*place).read_text(encoding="utf-8")


def _fill_in(text: str, slot: str, name: str) -> str:
    package = distribution(slot, name)
    replacements = {
        "The Usage": _USAGE_LINES[slot],
        "the-distribution": package,
        "the_module": package.replace("-", "_"),
        "TheClass": _class_name(slot, name),
        "the-slot": slot,
        "the-name": name,
    }
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text


def _class_name(slot: str, name: str) -> str:
    """Return a class name for the plugin that ends with its kind."""
    words, kind = (
        "".join(word.capitalize() for word in name.split("-")),
        "Forge" if slot == "scm" else slot.capitalize(),
    )
    return words if words.endswith(kind) and words != kind else words + kind
