"""Parsers of tools' output: failures, tests, and files that a tool could not check. One module per family of tools."""
