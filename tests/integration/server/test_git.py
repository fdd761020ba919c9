"""A project's repository over HTTP: sessions fetch it, bring their own work back, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.settings import clean_environment
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.git_server import Rights, Source, receive_push
from agent_orchestrator.cluster.node.repository import Access
from agent_orchestrator.errors import Denied
from tests.integration.server.conftest import World

pytestmark = pytest.mark.anyio

SESSION = "app-fix"
OWN = f"refs/ao/clone/{SESSION}"


def quiet(*argv: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
    """Run Git where nobody has to answer meanwhile."""
    done = subprocess.run(
        ["git", *argv],
        cwd=cwd,
        env={**clean_environment(), **(env or {})},
        input=stdin,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def session_facts(session: str) -> SimpleNamespace:
    """A session at its first launch."""
    launch = SimpleNamespace(lost="")
    return SimpleNamespace(id=session, project="app", generation=1, remote=True, launch=launch)


@dataclass
class Place:
    """The served repository, and a clone of it elsewhere."""

    world: World
    repo: Path
    clone: Path

    @property
    def facts(self) -> SimpleNamespace:
        found: SimpleNamespace = self.world.services.sessions.flow.sessions[SESSION]
        return found

    def token(self, session: str = SESSION, generation: int = 1) -> str:
        """Of the session's node."""
        return self.world.services.tokens.for_upload(session, generation)

    @property
    def url(self) -> str:
        return f"{self.world.url}/git/app.git"

    async def git(self, *argv: str, token: str | None = None, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Git in the clone, with the token of the session's node; its exit code and all that it says."""
        access = Access(self.world.url, self.token() if token is None else token)
        environment = {**clean_environment(), **access.environment("app"), **(env or {})}
        process = await asyncio.create_subprocess_exec(
            "git",
            *argv,
            cwd=self.clone,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 120)
        return process.returncode or 0, out.decode()

    def commit(self, name: str = "work.txt", content: bytes = b"work\n") -> str:
        (self.clone / name).write_bytes(content)
        quiet("add", "-A", cwd=self.clone)
        quiet("commit", "-qm", name, cwd=self.clone)
        return quiet("rev-parse", "HEAD", cwd=self.clone)

    def refs(self, where: str = "refs") -> dict[str, str]:
        lines = quiet("for-each-ref", "--format=%(refname) %(objectname)", where, cwd=self.repo).splitlines()
        return dict(line.split() for line in lines)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, and an empty clone."""
    folder = tmp_path_factory.mktemp("template")
    person = "[user]\n\tname = P\n\temail = p@example.invalid\n"
    for name in ("repo", "clone"):
        quiet("init", "-q", "-b", "main", "--template=", name, cwd=folder)
        with (folder / name / ".git" / "config").open("a") as config:
            config.write(person)
    repo = folder / "repo"
    (repo / "a.txt").write_text("one\n")
    quiet("add", ".", cwd=repo)
    quiet("commit", "-qm", "first", cwd=repo)
    others = ("refs/ao/clone/app-other", "refs/ao/rescue/app-other", "refs/ao/checkpoint/app-fix-2", "refs/stash")
    quiet("update-ref", "--stdin", cwd=repo, stdin="".join(f"create {name} HEAD\n" for name in others).encode())
    return folder


@pytest.fixture
async def place(world: World, tmp_path: Path, template: Path) -> Place:
    repo, clone = (Path(shutil.copytree(template / name, tmp_path / name)) for name in ("repo", "clone"))
    place = Place(world, repo, clone)
    with (clone / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = {place.url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
    world.services.sessions.flow.sessions[SESSION] = session_facts(SESSION)
    settings = SimpleNamespace(project=lambda _name: SimpleNamespace(path=repo))
    world.services.core = SimpleNamespace(settings=settings, host=LocalHost())
    return place


@pytest.mark.parametrize("version", ["0", "2"])
async def test_fetches_and_brings_back(place: Place, version: str) -> None:
    protocol = ("-c", f"protocol.version={version}")
    assert await place.git(*protocol, "fetch", "-q", "origin") == (0, "")
    quiet("reset", "-q", "--hard", "origin/main", cwd=place.clone)
    head = place.commit()
    assert await place.git(*protocol, "push", "-q", "origin", f"HEAD:{OWN}") == (0, "")
    assert place.refs()[OWN] == head
    quiet("commit", "-q", "--amend", "-m", "another", cwd=place.clone)
    code, said = await place.git("push", "-q", "origin", f"HEAD:{OWN}")
    assert code and "rejected" in said, "without force only forward, by Git's own rule"
    assert await place.git("push", "-q", "--force", "origin", f"HEAD:{OWN}") == (0, "")
    assert place.refs()[OWN] != head
    quiet("fsck", "--strict", cwd=place.repo)
    assert not [path.name for path in (place.repo / ".git" / "objects").glob("tmp_objdir*")]


async def test_shows_nothing_of_other_sessions(place: Place) -> None:
    quiet("update-ref", OWN, "HEAD", cwd=place.repo)
    code, said = await place.git("ls-remote", "origin")
    assert not code and {line.split("\t")[1] for line in said.splitlines()} == {"HEAD", "refs/heads/main", OWN}
    place.commit()
    trace = {"GIT_TRACE_PACKET": "1"}
    _, said = await place.git("push", "-f", "origin", f"HEAD:{OWN}", env=trace)
    assert OWN in said and "app-other" not in said and "app-fix-2" not in said and "refs/stash" not in said


async def test_nothing_but_its_own_is_written(place: Place) -> None:
    head = place.commit()
    before = place.refs()
    by_itself, not_there = "brought over by themselves", "may not write there"
    for ref, why in {
        "refs/heads/main": by_itself,
        "refs/heads/new": by_itself,
        "refs/tags/v1": by_itself,
        "refs/ao/clone/app-other": not_there,
        "refs/ao/checkpoint/app-fix-2": not_there,
        "refs/ao/rescue/app-fix-2/deep": not_there,
        "refs/ao/stale/app-fix/../app-other": not_there,
        "refs/ao/keep/app-fix": not_there,
        "refs/ao/published/app-fix": not_there,
    }.items():
        lines = [f"{'0' * 40} {head} {OWN}\0report-status".encode(), f"{'0' * 40} {head} {ref}".encode()]
        body = b"".join(b"%04x%s" % (len(line) + 4, line) for line in lines) + b"0000"
        status, _, said = await raw(place, "git-receive-pack", body)
        assert status == 200 and f"ng {ref} ".encode() in said and why.encode() in said, (ref, said)
        assert f"ng {OWN} {ref} was refused".encode() in said, "all or none"
    code, said_to_people = await place.git("push", "origin", "HEAD:new")
    assert code and "! [remote rejected] HEAD -> new (commit, and do not push" in said_to_people
    assert place.refs() == before


async def test_an_agent_reads_and_saves_nothing_in_its_nodes_name(place: Place) -> None:
    """What waits under these refs is put into workspaces, outside of any sandbox."""
    agents = place.world.services.tokens.for_session(SESSION, 1)
    place.commit()
    before = place.refs()
    stale = f"refs/ao/stale/{SESSION}/1"
    for ref in (OWN, f"refs/ao/rescue/{SESSION}", f"refs/ao/checkpoint/{SESSION}", stale, "refs/heads/new"):
        code, said = await place.git("push", "origin", f"HEAD:{ref}", token=agents)
        assert code and "(commit, and do not push" in said, said
    assert place.refs() == before
    assert await place.git("fetch", "-q", "origin", token=agents) == (0, "")
    assert (await place.git("push", "-q", "origin", f"HEAD:{stale}"))[0] == 0, "its node may"


async def test_a_nodes_word_for_a_session_opens_nothing_but_the_repository(place: Place) -> None:
    client = place.world.tcp()
    for path in ("/api/me", f"/api/sessions/{SESSION}", "/api/sessions"):
        answer = await client.get(path, Authorization=f"Bearer {place.token()}")
        assert answer.status == 403 and b"brings the work of app-fix over" in answer.body, (path, answer.body)
    answer = await client.ask("POST", "/mcp", {}, {"Authorization": f"Bearer {place.token()}"})
    assert answer.status == 403


async def test_a_session_of_this_machine_saves_nothing_in_the_daemons_name(place: Place) -> None:
    """Its agent has a token too, and what waits under these refs is put into workspaces, outside of any sandbox."""
    place.facts.remote = False
    place.commit()
    before = place.refs()
    for ref in (OWN, f"refs/ao/rescue/{SESSION}", f"refs/ao/checkpoint/{SESSION}"):
        code, said = await place.git("push", "origin", f"HEAD:{ref}")
        assert code and "where it is" in said, said
    assert (await place.git("fetch", "origin"))[0]
    assert place.refs() == before


async def test_nothing_is_removed(place: Place) -> None:
    place.commit()
    await place.git("push", "-q", "origin", f"HEAD:{OWN}")
    before = place.refs()
    code, said = await place.git("push", "origin", f":{OWN}")
    assert code and "remote rejected" in said
    line = f"{before[OWN]} {'0' * 40} {OWN}\0report-status".encode()
    status, _, body = await raw(place, "git-receive-pack", b"%04x%s0000" % (len(line) + 4, line))
    assert status == 200 and b"nothing is removed by a push" in body and place.refs() == before


async def raw(place: Place, service: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.world.port)
    given = {"Authorization": f"Bearer {place.token()}", "Content-Length": str(len(body)), **headers}
    lines = [f"POST /git/app.git/{service} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *more = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in more), rest


async def test_who_may_not_gets_a_line(place: Place) -> None:
    for token, why in (
        ("", "Authentication failed"),
        ("aos_app-fix.1.wrong", "Authentication failed"),
        (place.token("app-none"), "is no session of project app"),
        (place.world.services.tokens.cli_token(), "served to sessions on other machines only"),
    ):
        code, said = await place.git("fetch", "origin", token=token)
        assert code and (why in said or "could not read Username" in said), said
    place.facts.project = "elsewhere"
    assert "is no session of project app" in (await place.git("fetch", "origin"))[1]
    place.facts.project, place.facts.generation = "app", 2
    code, said = await place.git("fetch", "origin")
    assert code and "remote: launch 1 of app-fix is over: it is at launch 2" in said
    place.facts.generation, place.facts.launch.lost = 1, "its node is lost"
    assert "launch 1 of app-fix is over" in (await place.git("fetch", "origin"))[1]
    assert await place.git("fetch", "-q", "origin", token=place.token(generation=2)) == (0, "")


async def test_the_token_may_be_a_password(place: Place) -> None:
    url = place.url.replace("http://", f"http://session:{place.token()}@")
    assert (await place.git("ls-remote", url, "refs/heads/main", env={"GIT_CONFIG_COUNT": "0"}))[0] == 0
    shown = base64.b64encode(f"session:{place.token()}".encode()).decode()
    client = place.world.tcp()
    answer = await client.get("/api/me", Authorization=f"Basic {shown}")
    assert answer.status == 401, "nowhere but here"


async def test_a_launch_that_is_over_in_the_middle_of_a_push_lands_nothing(place: Place) -> None:
    place.commit("large.bin", os.urandom(3 << 20))
    process = asyncio.create_task(
        place.git("-c", "http.postBuffer=65536", "push", "origin", f"HEAD:{OWN}", env={"GIT_TRACE_PACKET": "0"})
    )
    objects = place.repo / ".git" / "objects"
    while not process.done() and not list(objects.glob("tmp_objdir*")):
        await asyncio.sleep(0.001)
    assert not process.done()
    place.facts.generation = 2
    code, said = await process
    assert code and "launch 1 of app-fix is over" in said
    assert OWN not in place.refs()
    assert not list(objects.glob("tmp_objdir*")) and not list(objects.glob("pack/*")), "nor any object"


async def test_objects_are_looked_at(place: Place) -> None:
    tree = quiet("rev-parse", "HEAD^{tree}", cwd=place.repo)
    person = "A <a@example.invalid> 1700000000 +0000"
    good = quiet("rev-parse", "HEAD", cwd=place.repo)
    await place.git("fetch", "-q", "origin")
    bad = quiet(
        *("hash-object", "-t", "commit", "-w", "--stdin", "--literally"),
        cwd=place.clone,
        stdin=f"tree {tree}\nparent {good}\nauthor {person}\ncommitter\n\nno committer\n".encode(),
    )
    quiet("config", "receive.fsckObjects", "false", cwd=place.repo)
    quiet("config", "receive.fsck.missingSpaceBeforeEmail", "ignore", cwd=place.repo)
    hook = place.repo / ".git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    code, said = await place.git("push", "origin", f"{bad}:{OWN}")
    assert code and "expected 'committer' line" in said and OWN not in place.refs(), said
    place.commit()
    assert (await place.git("push", "-q", "-f", "origin", f"HEAD:{OWN}"))[0] == 0
    assert not (place.repo / ".git" / "ran").exists() and not (place.repo / "ran").exists()


def pushed(place: Place, commit: str) -> bytes:
    """A push of one commit, without what is before it."""
    listing = quiet("rev-list", "--objects", f"{commit}^..{commit}", cwd=place.clone)
    objects = "".join(f"{line.split()[0]}\n" for line in listing.splitlines()).encode()
    done = subprocess.run(
        ["git", "pack-objects", "--stdout", "-q"], cwd=place.clone, input=objects, capture_output=True, check=True
    )
    line = f"{'0' * 40} {commit} {OWN}\0report-status".encode()
    return b"%04x%s0000" % (len(line) + 4, line) + done.stdout


async def test_what_is_not_whole_is_refused(place: Place) -> None:
    """The pack alone is well-formed, but a commit's parent is nowhere, or the parent's own files are."""
    first = place.commit()
    (place.clone / "work.txt").unlink()
    push = pushed(place, place.commit("b.txt", b"b\n"))
    for parent in (
        b"",
        subprocess.run(["git", "cat-file", "commit", first], cwd=place.clone, capture_output=True).stdout,
    ):
        if parent:
            quiet("hash-object", "-t", "commit", "-w", "--stdin", "--literally", cwd=place.repo, stdin=parent)
        status, _, body = await raw(place, "git-receive-pack", push)
        assert status == 200 and f"ng {OWN}".encode() in body and OWN not in place.refs(), body


@pytest.mark.parametrize(("over_after", "lands"), [(0, False), (1, False), (2, True)])
async def test_the_right_is_asked_for_until_the_last_moment(place: Place, over_after: int, lands: bool) -> None:
    await place.git("fetch", "-q", "origin")
    quiet("reset", "-q", "--hard", "origin/main", cwd=place.clone)
    push, asked = pushed(place, place.commit()), 0

    def still() -> None:
        nonlocal asked
        asked += 1
        if asked > over_after:
            raise Denied("launch 1 of app-fix is over")

    async def pieces() -> AsyncIterator[bytes]:
        yield push

    answer = receive_push(
        Git(LocalHost(), place.repo), Rights(SESSION, place.repo, still, is_node=True), Source(pieces())
    )
    said = b"".join([piece async for piece in answer])
    assert (f"ok {OWN}".encode() in said, OWN in place.refs()) == (lands, lands)
    assert lands or b"launch 1 of app-fix is over" in said


async def test_compressed_requests_and_expectations(place: Place) -> None:
    import gzip

    wanted = b"0014command=ls-refs\n00010009peel\n0000"
    status, headers, plain = await raw(place, "git-upload-pack", wanted, Git_Protocol="version=2")
    assert status == 200 and headers["content-type"] == "application/x-git-upload-pack-result"
    packed = gzip.compress(wanted)
    _, _, same = await raw(place, "git-upload-pack", packed, Git_Protocol="version=2", Content_Encoding="gzip")
    assert same == plain and b"refs/heads/main" in plain
    status, _, said = await raw(place, "git-upload-pack", wanted, Content_Encoding="gzip")
    assert status == 422 and b"not compressed as it says" in said
    _, _, said = await raw(place, "git-upload-pack", wanted, Git_Protocol="version=2", Expect="100-continue")
    assert said.startswith(b"HTTP/1.1 200") and b"refs/heads/main" in said
    status, _, said = await raw(place, "git-receive-pack", b"0000")
    assert (status, said.strip(b"0\r\n")) == (200, b"")
    for body in (b"zzzz", b"00", b"0009hello0000"):
        status, _, said = await raw(place, "git-receive-pack", body)
        assert status == 422 and b"\n" not in said.strip(), (body, said)


async def test_whoever_hangs_up_ends_his_git(place: Place) -> None:
    (place.repo / "large.bin").write_bytes(os.urandom(12 << 20))
    quiet("-c", "core.compression=0", "add", ".", cwd=place.repo)
    quiet("commit", "-qm", "large", cwd=place.repo)
    head = quiet("rev-parse", "HEAD", cwd=place.repo)
    reader, writer = await asyncio.open_connection("127.0.0.1", place.world.port, limit=1 << 14)
    body = b"0011command=fetch0001000fno-progress0032want %s\n0009done\n0000" % head.encode()
    writer.write(
        b"POST /git/app.git/git-upload-pack HTTP/1.1\r\nHost: 127.0.0.1\r\nGit-Protocol: version=2\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (place.token().encode(), len(body), body)
    )
    assert b"200" in await reader.readline()
    assert uploads(place.repo)
    writer.close()
    async with asyncio.timeout(60):
        while uploads(place.repo):
            await asyncio.sleep(0.01)


def uploads(repo: Path) -> list[int]:
    host, mark = LocalHost(), b"upload-pack"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and host.process(int(entry.name)):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in command and os.fsencode(repo) in command:
                found.append(int(entry.name))
    return found


async def stopping(
    place: Place, token: str, *, body: bytes = b"0014"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A fetch that says so much, and then nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.world.port, limit=1 << 14)
    writer.write(
        b"POST /git/app.git/git-upload-pack HTTP/1.1\r\nHost: 127.0.0.1\r\nGit-Protocol: version=2\r\n"
        b"Authorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"
        % (token.encode(), len(body), body)
    )
    return reader, writer


async def until_uploads(place: Place, count: int) -> None:
    async with asyncio.timeout(60):
        while len(uploads(place.repo)) != count:
            await asyncio.sleep(0.01)


async def test_nobody_has_many_gits_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cluster.git_server.limits.WAIT_TIMEOUT", 0.2)
    monkeypatch.setattr("agent_orchestrator.cluster.git_server.limits.MAX_AGENTS_TOTAL", 6)
    tokens, sessions = place.world.services.tokens, place.world.services.sessions.flow.sessions
    agents = tokens.for_session(SESSION, 1)
    begun = [await stopping(place, agents) for _ in range(12)]
    await until_uploads(place, 4)
    answers = [asyncio.create_task(reader.readline()) for reader, _ in begun]
    async with asyncio.timeout(60):
        while sum(answer.done() for answer in answers) < 8:
            await asyncio.wait([answer for answer in answers if not answer.done()], return_when=asyncio.FIRST_COMPLETED)
    assert all(b"503" in answer.result() for answer in answers if answer.done()) and len(uploads(place.repo)) == 4
    for answer in answers:
        answer.cancel()
    code, said = await place.git("fetch", "origin", token=agents)
    assert code and "remote: 4 Gits work for app-fix already: try again when they are done" in said
    assert await place.git("fetch", "-q", "origin") == (0, ""), "its node does not wait for it"
    sessions["app-other"] = session_facts("app-other")
    others = tokens.for_session("app-other", 1)
    assert await place.git("fetch", "-q", "origin", token=others) == (0, ""), "nor do others"
    begun += [await stopping(place, others) for _ in range(3)]
    await until_uploads(place, 6)
    assert "remote: 6 Gits work for agents already" in (await place.git("fetch", "origin", token=others))[1]
    assert await place.git("fetch", "-q", "origin") == (0, ""), "nodes save work: they wait for no agent"
    for _, writer in begun:
        writer.close()
    await until_uploads(place, 0)
    assert await place.git("fetch", "-q", "origin", token=agents) == (0, "")


async def test_whoever_stops_in_the_middle_ends_his_git(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.server.routes.git.SILENCE_TIMEOUT", 4.0)
    wanted = b"0014command=ls-refs\n00010009peel\n0000"
    reader, writer = await stopping(place, place.token(), body=wanted[:4])
    for start in range(4, len(wanted), 4):  # slowly, and longer than that in all, but it goes on
        piece = wanted[start : start + 4]
        await asyncio.sleep(0.5)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    writer.write(b"0\r\n\r\n")
    assert b"200" in await reader.readline()
    writer.close()
    monkeypatch.setattr("agent_orchestrator.server.routes.git.SILENCE_TIMEOUT", 0.5)
    reader, writer = await stopping(place, place.token())
    assert b"408" in await asyncio.wait_for(reader.readline(), 60)
    await until_uploads(place, 0)
    writer.close()


async def test_whoever_takes_nothing_ends_his_git(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.server.routes.git.SILENCE_TIMEOUT", 2.0)
    (place.repo / "large.bin").write_bytes(os.urandom(12 << 20))
    quiet("-c", "core.compression=0", "add", ".", cwd=place.repo)
    quiet("commit", "-qm", "large", cwd=place.repo)
    head = quiet("rev-parse", "HEAD", cwd=place.repo)
    body = b"0011command=fetch0001000fno-progress0032want %s\n0009done\n0000" % head.encode()
    reader, writer = await stopping(place, place.token(), body=body)
    writer.write(b"0\r\n\r\n")
    assert b"200" in await reader.readline()
    await until_uploads(place, 0)
    writer.close()


async def test_a_push_without_an_end_of_what_is_cut_off_is_refused(place: Place) -> None:
    line = b"shallow " + b"a" * 65_000
    status, _, said = await raw(place, "git-receive-pack", b"%04x%s" % (len(line) + 4, line))
    assert status == 422 and b"not a push that can be taken" in said
