"""Real projects from the registries, and the suite that tries `ao` on them: `make test-projects`.

`corpus/*.toml` describes one project each; `corpus.py` reads it, `registry.py` fetches it, `verify.py` proves the
description without our product. Nothing of the projects themselves is kept in the repository.
"""
