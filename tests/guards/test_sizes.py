"""Maximum length of modules and size of folders; larger ones are to be split by subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "scripts")
MAX_LINES = 600
MAX_MODULES = 20
"""The maximum number of modules in a folder, without `__init__.py`."""


def modules() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_no_module_is_too_long() -> None:
    lengths = {path: len(path.read_bytes().splitlines()) for path in modules()}
    assert len(lengths) > 1000, "the modules were not found"
    too_long = {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > MAX_LINES}
    assert not too_long, f"split these by subject, into modules of at most {MAX_LINES} lines: {too_long}"


def test_no_folder_is_too_full() -> None:
    counts: dict[str, int] = {}
    for path in modules():
        if path.name != "__init__.py":
            folder = str(path.parent.relative_to(ROOT))
            counts[folder] = counts.get(folder, 0) + 1
    too_full = {folder: count for folder, count in counts.items() if count > MAX_MODULES}
    assert not too_full, f"group these by subject, into folders of at most {MAX_MODULES} modules: {too_full}"
