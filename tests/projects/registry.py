"""Fetches a project by the registry's own client, checks its digest and makes it a Git repository of one commit and one tag."""

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

from tests.projects.corpus import Project
from tests.projects.machine import CACHE, Unavailable, python

_APT = CACHE / "apt"


def repository(project: Project) -> Path:
    """The project as a Git repository in the cache: fetched if it is not there yet."""
    place = CACHE / "trees" / f"{project.name}-{project.sha256[:12]}-{_preparation(project)}"
    if place.is_dir():
        return place
    archive = _archive(project)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        top = list(Path(folder).iterdir())
        tree = top[0] if len(top) == 1 and top[0].is_dir() else Path(folder)
        _prepare(project, tree)
        tree.rename(place)
    return place


def _preparation(project: Project) -> str:
    text = repr((project.tag, project.remove, project.patches))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _prepare(project: Project, tree: Path) -> None:
    for pattern in ("PKG-INFO", "*.egg-info", "src/*.egg-info", ".git", *project.remove):
        for path in list(tree.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for patch in project.patches:
        patch.apply(tree)
    who = ["-c", "user.name=Person", "-c", "user.email=person@example.invalid"]
    for argv in (
        ["init", "-q", "-b", "main"],
        ["add", "-A", "--force"],
        [*who, "commit", "-q", "-m", f"{project.package} {project.version}"],
        [*who, "tag", "-a", "-m", project.version, project.tag or f"v{project.version}"],
    ):
        subprocess.run(["git", *argv], cwd=tree, check=True)


def _archive(project: Project) -> Path:
    place = CACHE / "archives" / f"{project.name}-{project.version}.tar"
    if not place.is_file() or _digest(place) != project.sha256:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            fetched = _FETCH[project.registry](project, Path(folder))
            if (digest := _digest(fetched)) != project.sha256:
                raise Unavailable(
                    f"{project.name}: the registry's archive has the digest {digest}, not {project.sha256}"
                )
            fetched.rename(place)
    return place


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(argv: Sequence[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(argv[:3])}: {done.stderr.strip()[-800:]}")
    return done.stdout


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Unavailable(f"{len(found)} files are {pattern}, not one")
    return found[0]


def _pypi(project: Project, folder: Path) -> Path:
    what = f"{project.package}=={project.version}"
    _run(
        [python(), "-m", "pip", "download", "-q", "--no-deps", "--no-binary", project.package, "-d", ".", what], folder
    )
    return _only(folder, "*.tar.*")


def _npm(project: Project, folder: Path) -> Path:
    _run(["npm", "pack", "--silent", f"{project.package}@{project.version}"], folder)
    return _only(folder, "*.tgz")


def _debian(project: Project, folder: Path) -> Path:
    """The upstream archive of a source package, by the machine's own Debian sources."""
    lists = _APT / "lists"
    parts = _APT / "sources.list.d"
    options = [f"Dir::State::lists={lists}", f"Dir::Etc::sourceparts={parts}", "Dir::Etc::sourcelist=/dev/null"]
    options += ["APT::Sandbox::User=root", f"Dir::Cache={_APT}"]
    given = ["-qq", *(word for one in options for word in ("-o", one))]
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    parts.mkdir(exist_ok=True)
    with (_APT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _source(project, folder, given, parts)


def _source(project: Project, folder: Path, given: Sequence[str], parts: Path) -> Path:
    """This version in any revision of Debian's: revisions go, the upstream archive stays."""
    _write_sources(parts)
    _run(["apt-get", *given, "update"], folder)
    known = _run(["apt-cache", *given, "showsrc", "--only-source", project.package], folder)
    revisions = re.findall(rf"^Version: (\S*{re.escape(project.version)}(?:-\S+)?)$", known, re.M)
    if not revisions:
        raise Unavailable(f"{project.name}: Debian's sources have no {project.package} {project.version}")
    what = f"{project.package}={revisions[0]}"
    _run(["apt-get", *given, "source", "--tar-only", "--only-source", what], folder)
    return _only(folder, "*.orig.tar.*[!c]")


def _write_sources(parts: Path) -> None:
    etc = Path("/etc/apt")
    for path in (etc / "sources.list.d").glob("*.sources"):
        stanzas = [one for one in re.split(r"\n\s*\n", path.read_text()) if "/debian" in one]
        source = "\n\n".join(re.sub(r"^Types:.*$", "Types: deb-src", one, flags=re.M) for one in stanzas)
        (parts / path.name).write_text(source + "\n")
    listed = etc / "sources.list"
    lines = listed.read_text().splitlines() if listed.is_file() else []
    debian = [re.sub(r"^deb\s", "deb-src ", one) for one in lines if one.startswith("deb ") and "/debian" in one]
    (parts / "machine.list").write_text("\n".join(debian) + "\n")


_FETCH = {"pypi": _pypi, "npm": _npm, "debian": _debian}
