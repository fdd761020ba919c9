"""Real projects from package registries, and the suite that runs `ao` on them: `make test-projects`.

Each `corpus/*.toml` describes one project; `corpus.py` reads it, `registry.py` fetches it, `verify.py` checks the
description without our product. No files of the projects are kept in the repository.
"""
