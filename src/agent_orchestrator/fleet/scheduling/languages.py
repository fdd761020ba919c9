"""Return the programming language of a file, by its name. Pure."""

from __future__ import annotations

_ENDINGS = {
    "python": "py pyi pyx ipynb",
    "javascript": "js jsx mjs cjs",
    "typescript": "ts tsx mts cts",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "kotlin": "kt kts",
    "scala": "scala sc",
    "c": "c h",
    "c++": "cc cpp cxx hh hpp hxx h",
    "c#": "cs",
    "swift": "swift",
    "objective-c": "m mm",
    "ruby": "rb rake",
    "php": "php",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "haskell": "hs",
    "clojure": "clj cljs cljc",
    "dart": "dart",
    "lua": "lua",
    "r": "r rmd",
    "julia": "jl",
    "perl": "pl pm",
    "zig": "zig",
    "shell": "sh bash zsh fish",
    "powershell": "ps1 psm1",
    "sql": "sql",
    "html": "html htm",
    "css": "css scss sass less",
    "vue": "vue",
    "svelte": "svelte",
    "terraform": "tf tfvars hcl",
    "yaml": "yaml yml",
    "json": "json",
    "toml": "toml",
    "markdown": "md markdown mdx",
    "protobuf": "proto",
    "graphql": "graphql gql",
}
_NAMES = {"dockerfile": "docker", "makefile": "make", "gemfile": "ruby", "rakefile": "ruby"}
_ALIASES = {"js": "javascript", "ts": "typescript", "py": "python", "golang": "go", "cpp": "c++", "csharp": "c#"}

_LANGUAGES_BY_ENDING: dict[str, set[str]] = {}
for _language, _endings in _ENDINGS.items():
    for _ending in _endings.split():
        _LANGUAGES_BY_ENDING.setdefault(_ending, set()).add(_language)


def languages_of(path: str) -> frozenset[str]:
    """Return the languages that a file may be written in."""
    name = path.rpartition("/")[2].lower()
    languages = set(_LANGUAGES_BY_ENDING.get(name.rpartition(".")[2], ())) if "." in name else set()
    return frozenset(languages | ({_NAMES[name]} if name in _NAMES else set()))


def language_named(text: str) -> str:
    """Return the name that this module uses for a language; an alias is replaced."""
    normalized = text.strip().casefold()
    return _ALIASES.get(normalized, normalized)
