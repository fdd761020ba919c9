"""Linters, type checkers and compilers whose output is recorded.

Each with cases of errors in its files: once, twice, further down, and in two files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RecordedLinter:
    """A linter with its project: `wrong` is an error in `first_file`, `other` one in `second_file`."""

    name: str
    command: str
    first_file: str
    second_file: str
    wrong: str
    other: str
    again: str
    """The same error a second time in the same file."""
    needs: str = ""
    more: Mapping[str, str] = field(default_factory=dict)
    right: str = "\n"
    """Lines without an error."""
    head: str = ""
    """The beginning of each file."""

    def cases(self) -> dict[str, dict[str, str]]:
        """Return the files of each case."""
        states = {
            "clean": (self.right, self.right),
            "one": (self.wrong, self.right),
            "moved": (self.right * 3 + self.wrong, self.right),
            "twice": (self.wrong + self.again, self.right),
            "two": (self.wrong, self.other),
        }
        return {
            case: {**self.more, self.first_file: self.head + first, self.second_file: self.head + second}
            for case, (first, second) in states.items()
        }


_UNUSED = "import os\n"
_ESLINT = "export default [{ rules: { 'no-undef': 'error', 'no-unused-vars': 'warn', 'no-debugger': 'error' } }];\n"
_TS = ("a.ts", "b.ts", "const a: number = 'x';\n", "const b: string = 1;\n", "const c: number = 'y';\n", "npm")
_NAMES = ("a.py", "b.py", "print(nothing)\n", _UNUSED, "print(nothing)\n", "py3.11")
_CARGO = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "Cargo.lock": 'version = 4\n\n[[package]]\nname = "sums"\nversion = "0.1.0"\n',
    "src/lib.rs": "pub mod a;\npub mod b;\n",
}
LINTERS = (
    RecordedLinter("ruff", "ruff check --isolated --no-cache .", *_NAMES),
    RecordedLinter("ruff-concise", "ruff check --isolated --no-cache --output-format concise .", *_NAMES),
    RecordedLinter(
        "ruff-format",
        "ruff format --isolated --no-cache --check .",
        "a.py",
        "b.py",
        "a  =  1\n",
        "b  =  1\n",
        "c  =  1\n",
        "py3.11",
        right="d = 1\n",
    ),
    RecordedLinter("flake8", "flake8 .", *_NAMES, right="a = 1\n"),
    RecordedLinter(
        "mypy", "mypy --no-incremental .", "a.py", "b.py", "a: int = 'x'\n", "b: str = 1\n", "b: int = 'y'\n", "py3.11"
    ),
    RecordedLinter(
        "eslint",
        "eslint .",
        "a.js",
        "b.js",
        "nothing();\n",
        "debugger;\n",
        "nothing();\n",
        "npm",
        {"eslint.config.mjs": _ESLINT},
    ),
    RecordedLinter(
        "eslint-warnings",
        "eslint --max-warnings 0 .",
        "a.js",
        "b.js",
        "const a = 1;\n",
        "const b = 1;\n",
        "{ const a = 1; }\n",
        "npm",
        {"eslint.config.mjs": _ESLINT},
    ),
    RecordedLinter("tsc", "tsc --noEmit --strict a.ts b.ts", *_TS, right="export {};\n"),
    RecordedLinter("tsc-pretty", "tsc --pretty --noEmit --strict a.ts b.ts", *_TS, right="export {};\n"),
    RecordedLinter(
        "stylelint",
        "stylelint '*.css'",
        "a.css",
        "b.css",
        "a { color: #ggg; }\n",
        "b { color: #xyz; }\n",
        "b { color: #ggg; }\n",
        "npm",
        {".stylelintrc.json": '{"rules": {"color-no-invalid-hex": true}}\n'},
        right="i { color: red; }\n",
    ),
    RecordedLinter(
        "standard",
        "standard a.js b.js",
        "a.js",
        "b.js",
        "nothing()\n",
        "debugger\n",
        "nothing()\n",
        "npm",
        {"package.json": "{}\n"},
        right="parseInt('1')\n",
    ),
    RecordedLinter(
        "gcc",
        "cc -c a.c b.c",
        "a.c",
        "b.c",
        "int f(void) { return nothing; }\n",
        "int g(void) { return other; }\n",
        "int h(void) { return nothing; }\n",
        right="int a;\n",
    ),
    RecordedLinter(
        "go-vet",
        "go vet ./...",
        "a.go",
        "b.go",
        'func A() { fmt.Printf("%d", "x") }\n',
        'func B() { fmt.Printf("%s", 1) }\n',
        'func C() { fmt.Printf("%d", "x") }\n',
        more={"go.mod": "module example.com/sums\n\ngo 1.19\n"},
        right="var _ = fmt.Sprint()\n",
        head='package sums\n\nimport "fmt"\n\n',
    ),
    RecordedLinter(
        "clippy",
        "cargo clippy --offline -- -D warnings",
        "src/a.rs",
        "src/b.rs",
        "pub fn a(v: &Vec<i32>) -> usize { v.len() }\n",
        "pub fn b() -> i32 { return 1; }\n",
        "pub fn c(v: &Vec<i32>) -> usize { v.len() }\n",
        more=_CARGO,
    ),
)
