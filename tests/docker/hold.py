"""Run an engine by hand: `python -m tests.docker.hold` prints its environment, and ends it when standard input ends."""

from __future__ import annotations

import sys

from tests.docker.engine import IMAGE, docker

if __name__ == "__main__":
    with docker() as engine:
        sys.stdout.write(
            f"export {' '.join(f'{name}={value}' for name, value in engine.env.items())}  # image {IMAGE}\n"
        )
        sys.stdout.flush()
        sys.stdin.read()
