"""Fetches a project with the registry's client, checks its digest, and makes it a Git repository with one commit and one tag."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.projects.corpus import CorpusProject
from tests.projects.machine import CACHE, ToolUnavailable, find_python

_APT = CACHE / "apt"


def fetch_repository(project: CorpusProject) -> Path:
    """Return the project as a Git repository in the cache; fetch it if it is not there yet."""
    folder_of_tree = CACHE / "trees" / f"{project.name}-{project.sha256[:12]}-{_preparation(project)}"
    if folder_of_tree.is_dir():
        return folder_of_tree
    archive = _archive(project)
    folder_of_tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder_of_tree.parent) as folder:
        with tarfile.open(archive) as archive_file:
            archive_file.extractall(folder, filter="data")
        entries = list(Path(folder).iterdir())
        tree = entries[0] if len(entries) == 1 and entries[0].is_dir() else Path(folder)
        _prepare(project, tree)
        tree.rename(folder_of_tree)
    return folder_of_tree


def _preparation(project: CorpusProject) -> str:
    text = repr((project.tag, project.remove, project.patches))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _prepare(project: CorpusProject, tree: Path) -> None:
    for pattern in ("PKG-INFO", "*.egg-info", "src/*.egg-info", ".git", *project.remove):
        for path in list(tree.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for patch in project.patches:
        patch.apply(tree)
    identity = ["-c", "user.name=Person", "-c", "user.email=person@example.invalid"]
    for argv in (
        ["init", "-q", "-b", "main"],
        ["add", "-A", "--force"],
        [*identity, "commit", "-q", "-m", f"{project.package} {project.version}"],
        [*identity, "tag", "-a", "-m", project.version, project.tag or f"v{project.version}"],
    ):
        subprocess.run(["git", *argv], cwd=tree, check=True)


def _archive(project: CorpusProject) -> Path:
    archive = CACHE / "archives" / f"{project.name}-{project.version}.tar"
    if not archive.is_file() or _digest(archive) != project.sha256:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            download = _FETCH[project.registry](project, Path(folder))
            if (digest := _digest(download)) != project.sha256:
                raise ToolUnavailable(
                    f"{project.name}: the registry's archive has the digest {digest}, not {project.sha256}"
                )
            download.rename(archive)
    return archive


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(argv: Sequence[str], folder: Path) -> str:
    process = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        raise ToolUnavailable(f"{' '.join(argv[:3])}: {process.stderr.strip()[-800:]}")
    return process.stdout


def _single_match(folder: Path, pattern: str) -> Path:
    matches = sorted(folder.glob(pattern))
    if len(matches) != 1:
        raise ToolUnavailable(f"{len(matches)} files are {pattern}, not one")
    return matches[0]


def _pypi(project: CorpusProject, folder: Path) -> Path:
    requirement = f"{project.package}=={project.version}"
    _run(
        [
            find_python(),
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            project.package,
            "-d",
            ".",
            requirement,
        ],
        folder,
    )
    return _single_match(folder, "*.tar.*")


def _npm(project: CorpusProject, folder: Path) -> Path:
    _run(["npm", "pack", "--silent", f"{project.package}@{project.version}"], folder)
    return _single_match(folder, "*.tgz")


def _debian(project: CorpusProject, folder: Path) -> Path:
    """Fetch the upstream archive of a source package with the machine's Debian sources."""
    lists = _APT / "lists"
    parts = _APT / "sources.list.d"
    options = [f"Dir::State::lists={lists}", f"Dir::Etc::sourceparts={parts}", "Dir::Etc::sourcelist=/dev/null"]
    options += ["APT::Sandbox::User=root", f"Dir::Cache={_APT}"]
    apt_options = ["-qq", *(word for option in options for word in ("-o", option))]
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    parts.mkdir(exist_ok=True)
    with (_APT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _source(project, folder, apt_options, parts)


def _source(project: CorpusProject, folder: Path, apt_options: Sequence[str], parts: Path) -> Path:
    """Fetch this version in any Debian revision: the revisions share the upstream archive."""
    _write_sources(parts)
    _run(["apt-get", *apt_options, "update"], folder)
    source_records = _run(["apt-cache", *apt_options, "showsrc", "--only-source", project.package], folder)
    revisions = re.findall(rf"^Version: (\S*{re.escape(project.version)}(?:-\S+)?)$", source_records, re.M)
    if not revisions:
        raise ToolUnavailable(f"{project.name}: Debian's sources have no {project.package} {project.version}")
    requirement = f"{project.package}={revisions[0]}"
    _run(["apt-get", *apt_options, "source", "--tar-only", "--only-source", requirement], folder)
    return _single_match(folder, "*.orig.tar.*[!c]")


def _write_sources(parts: Path) -> None:
    etc = Path("/etc/apt")
    for path in (etc / "sources.list.d").glob("*.sources"):
        stanzas = [stanza for stanza in re.split(r"\n\s*\n", path.read_text()) if "/debian" in stanza]
        source = "\n\n".join(re.sub(r"^Types:.*$", "Types: deb-src", stanza, flags=re.M) for stanza in stanzas)
        (parts / path.name).write_text(source + "\n")
    sources_list = etc / "sources.list"
    lines = sources_list.read_text().splitlines() if sources_list.is_file() else []
    debian = [
        re.sub(r"^deb\s", "deb-src ", stanza) for stanza in lines if stanza.startswith("deb ") and "/debian" in stanza
    ]
    (parts / "machine.list").write_text("\n".join(debian) + "\n")


_FETCH = {"pypi": _pypi, "npm": _npm, "debian": _debian}
