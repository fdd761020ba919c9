"""A project's repository over HTTP: sessions can fetch it and push their own refs only."""

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
from agent_orchestrator.cluster.git_server import RequestStream, Rights, receive_push
from agent_orchestrator.cluster.node.repository import RepositoryAccess
from agent_orchestrator.errors import Denied
from tests.integration.server.conftest import ServerWorld

pytestmark = pytest.mark.anyio

SESSION = "app-fix"
OWN_REF = f"refs/ao/clone/{SESSION}"


def run_git(*argv: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
    """Run Git synchronously and return its output."""
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
    """Return facts of a session at its first launch."""
    launch = SimpleNamespace(loss_reason="")
    return SimpleNamespace(id=session, project="app", generation=1, remote=True, launch=launch)


@dataclass
class ServedRepository:
    """The served repository, and a clone of it."""

    world: ServerWorld
    repo: Path
    clone: Path

    @property
    def facts(self) -> SimpleNamespace:
        own_facts: SimpleNamespace = self.world.services.sessions.flow.sessions[SESSION]
        return own_facts

    def token(self, session: str = SESSION, generation: int = 1) -> str:
        """Return a token of the session's node."""
        return self.world.services.tokens.for_upload(session, generation)

    @property
    def url(self) -> str:
        return f"{self.world.url}/git/app.git"

    async def git(self, *argv: str, token: str | None = None, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run Git in the clone with the token of the session's node and return its exit code and output."""
        access = RepositoryAccess(self.world.url, self.token() if token is None else token)
        environment = {**clean_environment(), **access.agent_environment("app"), **(env or {})}
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
        run_git("add", "-A", cwd=self.clone)
        run_git("commit", "-qm", name, cwd=self.clone)
        return run_git("rev-parse", "HEAD", cwd=self.clone)

    def refs(self, prefix: str = "refs") -> dict[str, str]:
        lines = run_git("for-each-ref", "--format=%(refname) %(objectname)", prefix, cwd=self.repo).splitlines()
        return dict(line.split() for line in lines)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the repository and an empty clone, to be copied for each test."""
    folder = tmp_path_factory.mktemp("template")
    person = "[user]\n\tname = P\n\temail = p@example.invalid\n"
    for name in ("repo", "clone"):
        run_git("init", "-q", "-b", "main", "--template=", name, cwd=folder)
        with (folder / name / ".git" / "config").open("a") as config:
            config.write(person)
    repo = folder / "repo"
    (repo / "a.txt").write_text("one\n")
    run_git("add", ".", cwd=repo)
    run_git("commit", "-qm", "first", cwd=repo)
    others = ("refs/ao/clone/app-other", "refs/ao/rescue/app-other", "refs/ao/checkpoint/app-fix-2", "refs/stash")
    run_git("update-ref", "--stdin", cwd=repo, stdin="".join(f"create {name} HEAD\n" for name in others).encode())
    return folder


@pytest.fixture
async def served(world: ServerWorld, tmp_path: Path, template: Path) -> ServedRepository:
    repo, clone = (Path(shutil.copytree(template / name, tmp_path / name)) for name in ("repo", "clone"))
    served = ServedRepository(world, repo, clone)
    with (clone / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = {served.url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
    world.services.sessions.flow.sessions[SESSION] = session_facts(SESSION)
    settings = SimpleNamespace(project=lambda _name: SimpleNamespace(path=repo))
    world.services.core = SimpleNamespace(settings=settings, host=LocalHost())
    return served


@pytest.mark.parametrize("version", ["0", "2"])
async def test_a_session_can_fetch_and_push_its_own_ref(served: ServedRepository, version: str) -> None:
    protocol = ("-c", f"protocol.version={version}")
    assert await served.git(*protocol, "fetch", "-q", "origin") == (0, "")
    run_git("reset", "-q", "--hard", "origin/main", cwd=served.clone)
    head = served.commit()
    assert await served.git(*protocol, "push", "-q", "origin", f"HEAD:{OWN_REF}") == (0, "")
    assert served.refs()[OWN_REF] == head
    run_git("commit", "-q", "--amend", "-m", "another", cwd=served.clone)
    code, output = await served.git("push", "-q", "origin", f"HEAD:{OWN_REF}")
    assert code and "rejected" in output, "without force only fast-forward"
    assert await served.git("push", "-q", "--force", "origin", f"HEAD:{OWN_REF}") == (0, "")
    assert served.refs()[OWN_REF] != head
    run_git("fsck", "--strict", cwd=served.repo)
    assert not [path.name for path in (served.repo / ".git" / "objects").glob("tmp_objdir*")]


async def test_refs_of_other_sessions_are_hidden(served: ServedRepository) -> None:
    run_git("update-ref", OWN_REF, "HEAD", cwd=served.repo)
    code, output = await served.git("ls-remote", "origin")
    assert not code and {line.split("\t")[1] for line in output.splitlines()} == {"HEAD", "refs/heads/main", OWN_REF}
    served.commit()
    trace = {"GIT_TRACE_PACKET": "1"}
    _, output = await served.git("push", "-f", "origin", f"HEAD:{OWN_REF}", env=trace)
    assert OWN_REF in output and "app-other" not in output and "app-fix-2" not in output and "refs/stash" not in output


async def test_a_push_to_any_other_ref_is_refused(served: ServedRepository) -> None:
    head = served.commit()
    before = served.refs()
    for_branches, for_other_refs = "brought over by themselves", "may not write there"
    for ref, problem in {
        "refs/heads/main": for_branches,
        "refs/heads/new": for_branches,
        "refs/tags/v1": for_branches,
        "refs/ao/clone/app-other": for_other_refs,
        "refs/ao/checkpoint/app-fix-2": for_other_refs,
        "refs/ao/rescue/app-fix-2/deep": for_other_refs,
        "refs/ao/stale/app-fix/../app-other": for_other_refs,
        "refs/ao/keep/app-fix": for_other_refs,
        "refs/ao/published/app-fix": for_other_refs,
    }.items():
        lines = [f"{'0' * 40} {head} {OWN_REF}\0report-status".encode(), f"{'0' * 40} {head} {ref}".encode()]
        body = b"".join(b"%04x%s" % (len(line) + 4, line) for line in lines) + b"0000"
        status, _, output = await raw_request(served, "git-receive-pack", body)
        assert status == 200 and f"ng {ref} ".encode() in output and problem.encode() in output, (ref, output)
        assert f"ng {OWN_REF} {ref} was refused".encode() in output, "all refs or none"
    code, client_output = await served.git("push", "origin", "HEAD:new")
    assert code and "! [remote rejected] HEAD -> new (commit, and do not push" in client_output
    assert served.refs() == before


async def test_an_agents_token_can_fetch_but_not_push(served: ServedRepository) -> None:
    """The content of these refs is restored into workspaces outside of any sandbox."""
    agent_token = served.world.services.tokens.for_session(SESSION, 1)
    served.commit()
    before = served.refs()
    stale = f"refs/ao/stale/{SESSION}/1"
    for ref in (OWN_REF, f"refs/ao/rescue/{SESSION}", f"refs/ao/checkpoint/{SESSION}", stale, "refs/heads/new"):
        code, output = await served.git("push", "origin", f"HEAD:{ref}", token=agent_token)
        assert code and "(commit, and do not push" in output, output
    assert served.refs() == before
    assert await served.git("fetch", "-q", "origin", token=agent_token) == (0, "")
    assert (await served.git("push", "-q", "origin", f"HEAD:{stale}"))[0] == 0, "its node can"


async def test_a_nodes_token_for_a_session_opens_only_the_repository(served: ServedRepository) -> None:
    client = served.world.tcp()
    for path in ("/api/me", f"/api/sessions/{SESSION}", "/api/sessions"):
        answer = await client.get(path, Authorization=f"Bearer {served.token()}")
        assert answer.status == 403 and b"brings the work of app-fix over" in answer.body, (path, answer.body)
    answer = await client.ask("POST", "/mcp", {}, {"Authorization": f"Bearer {served.token()}"})
    assert answer.status == 403


async def test_a_local_session_can_neither_fetch_nor_push(served: ServedRepository) -> None:
    """Its agent has a token too, and the content of these refs is restored into workspaces outside of any sandbox."""
    served.facts.remote = False
    served.commit()
    before = served.refs()
    for ref in (OWN_REF, f"refs/ao/rescue/{SESSION}", f"refs/ao/checkpoint/{SESSION}"):
        code, output = await served.git("push", "origin", f"HEAD:{ref}")
        assert code and "where it is" in output, output
    assert (await served.git("fetch", "origin"))[0]
    assert served.refs() == before


async def test_a_push_cannot_delete_refs(served: ServedRepository) -> None:
    served.commit()
    await served.git("push", "-q", "origin", f"HEAD:{OWN_REF}")
    before = served.refs()
    code, output = await served.git("push", "origin", f":{OWN_REF}")
    assert code and "remote rejected" in output
    line = f"{before[OWN_REF]} {'0' * 40} {OWN_REF}\0report-status".encode()
    status, _, body = await raw_request(served, "git-receive-pack", b"%04x%s0000" % (len(line) + 4, line))
    assert status == 200 and b"nothing is removed by a push" in body and served.refs() == before


async def raw_request(
    served: ServedRepository, service: str, body: bytes, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send one raw request and return status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.world.port)
    all_headers = {"Authorization": f"Bearer {served.token()}", "Content-Length": str(len(body)), **headers}
    lines = [f"POST /git/app.git/{service} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in all_headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    status_line, *header_lines = head.decode().split("\r\n")
    return int(status_line.split()[1]), dict(line.lower().split(": ", 1) for line in header_lines), content


async def test_refused_requests_get_one_line(served: ServedRepository) -> None:
    for token, problem in (
        ("", "Authentication failed"),
        ("aos_app-fix.1.wrong", "Authentication failed"),
        (served.token("app-none"), "is no session of project app"),
        (served.world.services.tokens.cli_token(), "served to sessions on other machines only"),
    ):
        code, output = await served.git("fetch", "origin", token=token)
        assert code and (problem in output or "could not read Username" in output), output
    served.facts.project = "elsewhere"
    assert "is no session of project app" in (await served.git("fetch", "origin"))[1]
    served.facts.project, served.facts.generation = "app", 2
    code, output = await served.git("fetch", "origin")
    assert code and "remote: launch 1 of app-fix is over: it is at launch 2" in output
    served.facts.generation, served.facts.launch.loss_reason = 1, "its node is lost"
    assert "launch 1 of app-fix is over" in (await served.git("fetch", "origin"))[1]
    assert await served.git("fetch", "-q", "origin", token=served.token(generation=2)) == (0, "")


async def test_the_token_can_be_sent_as_a_password(served: ServedRepository) -> None:
    url = served.url.replace("http://", f"http://session:{served.token()}@")
    assert (await served.git("ls-remote", url, "refs/heads/main", env={"GIT_CONFIG_COUNT": "0"}))[0] == 0
    credentials = base64.b64encode(f"session:{served.token()}".encode()).decode()
    client = served.world.tcp()
    answer = await client.get("/api/me", Authorization=f"Basic {credentials}")
    assert answer.status == 401, "only for Git"


async def test_a_push_of_a_launch_that_ends_meanwhile_is_refused(served: ServedRepository) -> None:
    served.commit("large.bin", os.urandom(3 << 20))
    process = asyncio.create_task(
        served.git("-c", "http.postBuffer=65536", "push", "origin", f"HEAD:{OWN_REF}", env={"GIT_TRACE_PACKET": "0"})
    )
    objects = served.repo / ".git" / "objects"
    while not process.done() and not list(objects.glob("tmp_objdir*")):
        await asyncio.sleep(0.001)
    assert not process.done()
    served.facts.generation = 2
    code, output = await process
    assert code and "launch 1 of app-fix is over" in output
    assert OWN_REF not in served.refs()
    assert not list(objects.glob("tmp_objdir*")) and not list(objects.glob("pack/*")), "nor any object"


async def test_pushed_objects_are_checked(served: ServedRepository) -> None:
    tree = run_git("rev-parse", "HEAD^{tree}", cwd=served.repo)
    person = "A <a@example.invalid> 1700000000 +0000"
    good = run_git("rev-parse", "HEAD", cwd=served.repo)
    await served.git("fetch", "-q", "origin")
    bad = run_git(
        *("hash-object", "-t", "commit", "-w", "--stdin", "--literally"),
        cwd=served.clone,
        stdin=f"tree {tree}\nparent {good}\nauthor {person}\ncommitter\n\nno committer\n".encode(),
    )
    run_git("config", "receive.fsckObjects", "false", cwd=served.repo)
    run_git("config", "receive.fsck.missingSpaceBeforeEmail", "ignore", cwd=served.repo)
    hook = served.repo / ".git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    code, output = await served.git("push", "origin", f"{bad}:{OWN_REF}")
    assert code and "expected 'committer' line" in output and OWN_REF not in served.refs(), output
    served.commit()
    assert (await served.git("push", "-q", "-f", "origin", f"HEAD:{OWN_REF}"))[0] == 0
    assert not (served.repo / ".git" / "ran").exists() and not (served.repo / "ran").exists()


def push_request(served: ServedRepository, commit: str) -> bytes:
    """Return the request body of a push of one commit without its ancestors."""
    listing = run_git("rev-list", "--objects", f"{commit}^..{commit}", cwd=served.clone)
    objects = "".join(f"{line.split()[0]}\n" for line in listing.splitlines()).encode()
    result = subprocess.run(
        ["git", "pack-objects", "--stdout", "-q"], cwd=served.clone, input=objects, capture_output=True, check=True
    )
    line = f"{'0' * 40} {commit} {OWN_REF}\0report-status".encode()
    return b"%04x%s0000" % (len(line) + 4, line) + result.stdout


async def test_an_incomplete_push_is_refused(served: ServedRepository) -> None:
    """The pack is well-formed, but the commit's parent, or the files of the parent, are missing."""
    first = served.commit()
    (served.clone / "work.txt").unlink()
    push = push_request(served, served.commit("b.txt", b"b\n"))
    for parent in (
        b"",
        subprocess.run(["git", "cat-file", "commit", first], cwd=served.clone, capture_output=True).stdout,
    ):
        if parent:
            run_git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", cwd=served.repo, stdin=parent)
        status, _, body = await raw_request(served, "git-receive-pack", push)
        assert status == 200 and f"ng {OWN_REF}".encode() in body and OWN_REF not in served.refs(), body


@pytest.mark.parametrize(("over_after", "is_accepted"), [(0, False), (1, False), (2, True)])
async def test_rights_are_checked_until_the_refs_are_updated(
    served: ServedRepository, over_after: int, is_accepted: bool
) -> None:
    await served.git("fetch", "-q", "origin")
    run_git("reset", "-q", "--hard", "origin/main", cwd=served.clone)
    push, check_count = push_request(served, served.commit()), 0

    def check_rights() -> None:
        nonlocal check_count
        check_count += 1
        if check_count > over_after:
            raise Denied("launch 1 of app-fix is over")

    async def pieces() -> AsyncIterator[bytes]:
        yield push

    answer = receive_push(
        Git(LocalHost(), served.repo), Rights(SESSION, served.repo, check_rights, is_node=True), RequestStream(pieces())
    )
    output = b"".join([piece async for piece in answer])
    assert (f"ok {OWN_REF}".encode() in output, OWN_REF in served.refs()) == (is_accepted, is_accepted)
    assert is_accepted or b"launch 1 of app-fix is over" in output


async def test_compressed_requests_and_expect_headers_are_handled(served: ServedRepository) -> None:
    import gzip

    request = b"0014command=ls-refs\n00010009peel\n0000"
    status, headers, plain = await raw_request(served, "git-upload-pack", request, Git_Protocol="version=2")
    assert status == 200 and headers["content-type"] == "application/x-git-upload-pack-result"
    packed = gzip.compress(request)
    _, _, same = await raw_request(served, "git-upload-pack", packed, Git_Protocol="version=2", Content_Encoding="gzip")
    assert same == plain and b"refs/heads/main" in plain
    status, _, output = await raw_request(served, "git-upload-pack", request, Content_Encoding="gzip")
    assert status == 422 and b"not compressed as it says" in output
    _, _, output = await raw_request(
        served, "git-upload-pack", request, Git_Protocol="version=2", Expect="100-continue"
    )
    assert output.startswith(b"HTTP/1.1 200") and b"refs/heads/main" in output
    status, _, output = await raw_request(served, "git-receive-pack", b"0000")
    assert (status, output.strip(b"0\r\n")) == (200, b"")
    for body in (b"zzzz", b"00", b"0009hello0000"):
        status, _, output = await raw_request(served, "git-receive-pack", body)
        assert status == 422 and b"\n" not in output.strip(), (body, output)


async def test_a_closed_connection_ends_its_git_process(served: ServedRepository) -> None:
    (served.repo / "large.bin").write_bytes(os.urandom(12 << 20))
    run_git("-c", "core.compression=0", "add", ".", cwd=served.repo)
    run_git("commit", "-qm", "large", cwd=served.repo)
    head = run_git("rev-parse", "HEAD", cwd=served.repo)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.world.port, limit=1 << 14)
    body = b"0011command=fetch0001000fno-progress0032want %s\n0009done\n0000" % head.encode()
    writer.write(
        b"POST /git/app.git/git-upload-pack HTTP/1.1\r\nHost: 127.0.0.1\r\nGit-Protocol: version=2\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (served.token().encode(), len(body), body)
    )
    assert b"200" in await reader.readline()
    assert upload_pids(served.repo)
    writer.close()
    async with asyncio.timeout(60):
        while upload_pids(served.repo):
            await asyncio.sleep(0.01)


def upload_pids(repo: Path) -> list[int]:
    host, mark = LocalHost(), b"upload-pack"
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and host.process(int(entry.name)):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in command and os.fsencode(repo) in command:
                pids.append(int(entry.name))
    return pids


async def begin_fetch(
    served: ServedRepository, token: str, *, body: bytes = b"0014"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begin a fetch that sends this body and then stays silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.world.port, limit=1 << 14)
    writer.write(
        b"POST /git/app.git/git-upload-pack HTTP/1.1\r\nHost: 127.0.0.1\r\nGit-Protocol: version=2\r\n"
        b"Authorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"
        % (token.encode(), len(body), body)
    )
    return reader, writer


async def wait_for_uploads(served: ServedRepository, count: int) -> None:
    async with asyncio.timeout(60):
        while len(upload_pids(served.repo)) != count:
            await asyncio.sleep(0.01)


async def test_parallel_git_processes_are_limited_per_session_and_in_total(
    served: ServedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.cluster.git_server.limits.WAIT_TIMEOUT", 0.2)
    monkeypatch.setattr("agent_orchestrator.cluster.git_server.limits.MAX_AGENTS_TOTAL", 6)
    tokens, sessions = served.world.services.tokens, served.world.services.sessions.flow.sessions
    agent_token = tokens.for_session(SESSION, 1)
    fetches = [await begin_fetch(served, agent_token) for _ in range(12)]
    await wait_for_uploads(served, 4)
    answers = [asyncio.create_task(reader.readline()) for reader, _ in fetches]
    async with asyncio.timeout(60):
        while sum(answer.done() for answer in answers) < 8:
            await asyncio.wait([answer for answer in answers if not answer.done()], return_when=asyncio.FIRST_COMPLETED)
    assert all(b"503" in answer.result() for answer in answers if answer.done()) and len(upload_pids(served.repo)) == 4
    for answer in answers:
        answer.cancel()
    code, output = await served.git("fetch", "origin", token=agent_token)
    assert code and "remote: 4 Gits work for app-fix already: try again when they are done" in output
    assert await served.git("fetch", "-q", "origin") == (0, ""), "its node is not limited by it"
    sessions["app-other"] = session_facts("app-other")
    other_token = tokens.for_session("app-other", 1)
    assert await served.git("fetch", "-q", "origin", token=other_token) == (0, ""), "nor do others"
    fetches += [await begin_fetch(served, other_token) for _ in range(3)]
    await wait_for_uploads(served, 6)
    assert "remote: 6 Gits work for agents already" in (await served.git("fetch", "origin", token=other_token))[1]
    assert await served.git("fetch", "-q", "origin") == (0, ""), "nodes are not limited by agents"
    for _, writer in fetches:
        writer.close()
    await wait_for_uploads(served, 0)
    assert await served.git("fetch", "-q", "origin", token=agent_token) == (0, "")


async def test_a_request_that_stops_in_the_middle_ends_its_git_process(
    served: ServedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.routes.git.SILENCE_TIMEOUT", 4.0)
    request = b"0014command=ls-refs\n00010009peel\n0000"
    reader, writer = await begin_fetch(served, served.token(), body=request[:4])
    for start in range(4, len(request), 4):  # slowly, and longer than that in all, but it goes on
        piece = request[start : start + 4]
        await asyncio.sleep(0.5)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    writer.write(b"0\r\n\r\n")
    assert b"200" in await reader.readline()
    writer.close()
    monkeypatch.setattr("agent_orchestrator.server.routes.git.SILENCE_TIMEOUT", 0.5)
    reader, writer = await begin_fetch(served, served.token())
    assert b"408" in await asyncio.wait_for(reader.readline(), 60)
    await wait_for_uploads(served, 0)
    writer.close()


async def test_a_client_that_reads_nothing_ends_its_git_process(
    served: ServedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.routes.git.SILENCE_TIMEOUT", 2.0)
    (served.repo / "large.bin").write_bytes(os.urandom(12 << 20))
    run_git("-c", "core.compression=0", "add", ".", cwd=served.repo)
    run_git("commit", "-qm", "large", cwd=served.repo)
    head = run_git("rev-parse", "HEAD", cwd=served.repo)
    body = b"0011command=fetch0001000fno-progress0032want %s\n0009done\n0000" % head.encode()
    reader, writer = await begin_fetch(served, served.token(), body=body)
    writer.write(b"0\r\n\r\n")
    assert b"200" in await reader.readline()
    await wait_for_uploads(served, 0)
    writer.close()


async def test_a_push_with_an_overlong_shallow_line_is_refused(served: ServedRepository) -> None:
    line = b"shallow " + b"a" * 65_000
    status, _, output = await raw_request(served, "git-receive-pack", b"%04x%s" % (len(line) + 4, line))
    assert status == 422 and b"not a push that can be taken" in output
