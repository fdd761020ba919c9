"""Start and stop the daemon, open its dashboard: `ao start`, `ao shutdown`, `ao dashboard`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from agent_orchestrator.base.processes import is_process_running
from agent_orchestrator.cli import browser, out
from agent_orchestrator.cli.common import client, first_use_options, json_option
from agent_orchestrator.client.daemon_client import DaemonClient, NotRunning
from agent_orchestrator.errors import AoError, Conflict, UsageError

CLONE_TIMEOUT = 3600.0
_REMOTE = re.compile(r"[a-z+]+://\S+|[\w.-]+@[\w.-]+:\S+")


@click.command()
@click.argument("where", metavar="[PATH or URL]", required=False)
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), help="The dashboard's port instead of 3000.")
@click.option("--host", metavar="ADDRESS", help="The dashboard's address instead of 127.0.0.1.")
@click.option("--tls", is_flag=True, help="Serve the dashboard by TLS, with a certificate of its own, made once.")
@click.option("--tls-cert", metavar="FILE", help="Serve it by TLS with this certificate (PEM) …")
@click.option("--tls-key", metavar="FILE", help="… and this key.")
@click.option("--insecure", is_flag=True, help="Let other machines reach it without TLS.")
@click.option("--no-open", is_flag=True, help="Do not open the dashboard.")
@first_use_options
@click.option("--orchestrator", is_flag=True, help="Start the coordinating agent of the repository too.")
@click.option("--foreground", is_flag=True, help="Run the daemon here, not in the background.")
@click.option(
    "--at-login/--no-at-login",
    default=None,
    help="Have the daemon started when you log in, from now on; or no more, which is all that is done then.",
)
@click.option("--demo", is_flag=True, help="Show five scripted agents at work, in a home and repository of their own.")
@click.option("--all", "everything", is_flag=True, help="With --demo: show every trigger of a reaction too.")
def start(
    where: str | None,
    port: int | None,
    host: str | None,
    tls: bool,
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    no_open: bool,
    yes: bool,
    no_prove: bool,
    orchestrator: bool,
    foreground: bool,
    at_login: bool | None,
    demo: bool,
    everything: bool,
) -> None:
    """Start the daemon, register the repository here and open the dashboard.

    With a PATH the repository there, with a URL a clone of it. On first use agent-orchestrator.yaml is written, and its set-up and
    tests are proven, as `ao init` does. A --host that other machines reach needs TLS, or --insecure.
    """
    if demo:
        demo_arguments = ["--all"] if everything else []
        os.execv(sys.executable, [sys.executable, "-P", "-m", "agent_orchestrator.testing.demo", *demo_arguments])
    if everything:
        raise UsageError("--all says how much the demo shows", "ao start --demo --all")
    arguments = [
        *(["--port", str(port)] if port is not None else []),
        *(["--host", host] if host else []),
        *(["--tls"] if tls else []),
        *(["--tls-cert", os.path.abspath(os.path.expanduser(tls_cert))] if tls_cert else []),
        *(["--tls-key", os.path.abspath(os.path.expanduser(tls_key))] if tls_key else []),
        *(["--insecure"] if insecure else []),
    ]
    if at_login is False:
        from agent_orchestrator.cli.daemon.login_service import disable

        out.print_lines(disable(client(start=False)))
        return
    if at_login and foreground:
        raise UsageError("--foreground runs the daemon here, --at-login by the system", "give one of them")
    body = project_body(where)
    file = find_configuration(body)
    config_arguments = ["--config", file] if file else []
    register = partial(_register_project, yes=yes, no_prove=no_prove, orchestrator=orchestrator)
    ao = client()
    if foreground:
        _become_daemon(ao, arguments + config_arguments, body, no_open, register)
    if at_login:
        _enable_at_login(ao, arguments + config_arguments)
    if not ao.ensure_running(arguments + config_arguments) and arguments:
        _refuse_other_address(ao, port, host, secure=tls or bool(tls_cert))
    if ao.info().get("standby") and _show_standby(ao):
        return
    if body is None:
        out.print_note("no repository here: ao start PATH registers one")
    else:
        register(ao, body)
    _show_dashboard(ao, no_open)


def _enable_at_login(ao: DaemonClient, arguments: list[str]) -> None:
    """Let the system start the daemon at login and now, and wait until it answers."""
    from agent_orchestrator.cli.daemon.login_service import enable

    out.print_lines(enable(ao, arguments))
    deadline = time.monotonic() + 15.0
    while time.monotonic() < deadline:
        try:
            with DaemonClient(ao.home, start=False) as running:
                running.request("GET", "/healthz", timeout=5.0)
            return
        except NotRunning:
            time.sleep(0.05)


def _show_standby(ao: DaemonClient) -> bool:
    """Print that another daemon is active on the same database and return True; return False if this one is active."""
    health = ao.get("/healthz")
    if health["status"] != "standby":
        return False
    active = health["active"]
    active_text = (
        f"{active['host']}'s daemon (pid {active['pid']}, since {active['since']})" if active else "another daemon"
    )
    url_lines = f"  {active['url']}" if active and active["url"] else ""
    out.print_lines(
        [
            f"standby: {active_text} is active",
            *([url_lines] if url_lines else []),
            "  this one takes over when that one is gone",
        ]
    )
    return True


def _register_project(
    ao: DaemonClient, body: dict[str, Any], *, yes: bool, no_prove: bool, orchestrator: bool, asks: bool = True
) -> None:
    """Register the repository as a project, and start its coordinating agent if requested."""
    project = ao.post("/api/projects", body, timeout=CLONE_TIMEOUT)
    introduce_project(ao, project, yes=yes, no_prove=no_prove, ask=asks and "url" not in body, first=True)
    if orchestrator:
        from agent_orchestrator.cli.sessions.orchestrator import start_coordinator

        session = start_coordinator(ao, {"projectId": project["id"]})["session"]
        print(f"coordinating agent {session['id']}: give it a goal with `ao orchestrator GOAL`")


def project_body(where: str | None) -> dict[str, Any] | None:
    """Return what to register: the repository at a path or URL, or the one here; None if there is none."""
    if where is not None and not where.strip():
        raise UsageError("the path is empty", "give a folder or a URL")
    if where is not None and not os.path.exists(os.path.expanduser(where)) and _REMOTE.fullmatch(where):
        return {"url": where, "init": True}
    path = os.path.abspath(os.path.expanduser(where or "."))
    if where is None and not _in_repository(path):
        return None
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a folder", "give the folder of a Git repository, or a URL")
    return {"path": path, "init": True}


def find_configuration(body: dict[str, Any] | None) -> str | None:
    """Return the configuration file with the port, host and database of a daemon started here, or None."""
    if named := os.environ.get("AO_CONFIG"):
        return os.path.abspath(os.path.expanduser(named))
    path = str((body or {}).get("path") or "")
    while path:
        for name in ("agent-orchestrator.yaml", "agent-orchestrator.yml"):
            if os.path.isfile(os.path.join(path, name)):
                return os.path.join(path, name)
        above = os.path.dirname(path)
        path = "" if above == path else above
    return None


def _in_repository(path: str) -> bool:
    while not any(os.path.exists(os.path.join(path, name)) for name in (".git", "agent-orchestrator.yaml", "HEAD")):
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


_DEMO_AGENT_NOTE = (
    ", which is scripted and asks no model: no other was in your login shell's PATH when the daemon started. `ao agents` "
    "lists them; after installing one: ao shutdown, then ao config set defaults.agent NAME"
)


def introduce_project(
    ao: DaemonClient,
    project: dict[str, Any],
    *,
    yes: bool = False,
    no_prove: bool = False,
    ask: bool = True,
    first: bool = False,
) -> dict[str, Any] | None:
    """Show a newly registered project and have its detected commands proven; return the proof, if any.

    With `first` only if its configuration was just written.
    """
    proposal = project.get("proposal")
    if not proposal or (first and not project.get("created")):
        show_project(project)
        return None
    from agent_orchestrator.cli.setup.proof import proof_lines, propose

    proof = propose(ao, project, yes=yes, no_prove=no_prove, ask=ask)
    if proof:
        out.print_lines(proof_lines(proof))
        project = project | {"trusted": True}
    show_project(project, wrote=proof is None, asks_trust=False)
    return proof


def show_project(project: dict[str, Any], *, wrote: bool = True, asks_trust: bool = True) -> None:
    """Show a newly registered project, the written file, and whether it needs trust."""
    if created := project.get("created"):
        if wrote:
            print(f"wrote {out.one_line(created)}")
        if agent := project.get("agent"):
            print(f"agent {agent}{_DEMO_AGENT_NOTE if agent == 'demo' else ''}")
    details = [
        f"default branch {project['defaultBranch']}" if project.get("defaultBranch") else "",
        str(project.get("repo") or ""),
    ]
    location = f"{project.get('path')} ({', '.join(filter(None, details)) or 'local'})"
    print(f"project {project['id']}: {out.one_line(location)}")
    if asks_trust and project.get("trusted") is False:
        out.print_note(
            "the commands in its configuration do not run yet: `ao trust` shows and allows them, `ao init --check` proves them too"
        )


def _show_dashboard(ao: DaemonClient, no_open: bool) -> None:
    """Open the dashboard after a start if this is a terminal, else print its address."""
    if no_open:
        out.print_lines([*browser.address_lines(ao.info()), "  `ao dashboard` opens it, signed in"])
    else:
        browser.show_dashboard(ao, should_open=sys.stdout.isatty())


def _refuse_other_address(ao: DaemonClient, port: int | None, host: str | None, *, secure: bool) -> None:
    running = str(ao.info().get("url") or "")
    scheme, _, address = running.partition("://")
    now_host, _, now_port = address.rstrip("/").rpartition(":")
    if (port and str(port) != now_port) or (host and host != now_host) or (secure and scheme != "https"):
        raise Conflict(
            f"the daemon already runs at {running}", "`ao shutdown` first, then start it with another address"
        )


def _become_daemon(
    ao: DaemonClient, arguments: list[str], body: dict[str, Any] | None, no_open: bool, register: Callable[..., None]
) -> None:
    """Replace this process with the daemon; a child process registers the project once the daemon answers."""
    try:
        with DaemonClient(ao.home, start=False) as running:
            running.request("GET", "/healthz")
    except NotRunning:
        pass
    else:
        raise Conflict(f"the daemon already runs with pid {ao.info().get('pid')}", "`ao shutdown` stops it")
    if hasattr(os, "fork") and os.fork() == 0:
        if os.fork() == 0:
            _register_when_running(ao.home, body, no_open, register)
        os._exit(0)
    sys.stdout.flush()
    argv = [sys.executable, "-P", "-m", "agent_orchestrator.daemon", "--foreground", *arguments]
    os.execve(argv[0], argv, ao.daemon_environment())


def _register_when_running(
    home: str, body: dict[str, Any] | None, no_open: bool, register: Callable[..., None]
) -> None:
    ao = DaemonClient(home, start=False, notice=out.print_note)
    deadline = time.monotonic() + 15.0
    while time.monotonic() < deadline:
        try:
            if body is not None:
                register(ao, body, asks=False)
            _show_dashboard(ao, no_open)
        except NotRunning:
            time.sleep(0.05)
            continue
        except AoError as error:
            out.print_note(str(error))
        break
    sys.stdout.flush()
    os._exit(0)


@click.command()
@click.option("--sessions", is_flag=True, help="Stop the sessions too; their work is saved.")
def shutdown(sessions: bool) -> None:
    """Stop the daemon; sessions run on.

    They are adopted at the next start, which any command brings about. With --sessions a daemon that does not run is
    started to stop them.
    """
    ao = client(start=False)
    must_start = sessions and os.path.exists(
        os.path.join(ao.home, "daemon.lock")
    )  # else there was never one, nor a session
    if must_start:
        client().get("/healthz")
    info = ao.info()
    try:
        ao.request("POST", "/api/shutdown", {"sessions": sessions}, timeout=600.0 if sessions else 60.0)
    except NotRunning:
        if must_start:
            raise
        print("The daemon is not running.")
        return
    ao.close()
    deadline = time.monotonic() + 60.0
    while _is_running(ao, info):
        if time.monotonic() > deadline:
            raise AoError(f"the daemon (pid {info.get('pid')}) has not ended after 60 s", f"see {ao.log_path}")
        time.sleep(0.02)
    print("The daemon and all sessions are stopped." if sessions else "The daemon is stopped; sessions run on.")


def _is_running(ao: DaemonClient, info: dict[str, Any]) -> bool:
    """Return whether the daemon of this information still answers or its process still runs."""
    try:
        ao.request("GET", "/healthz", timeout=5.0, repeat=False)
        return bool(ao.info().get("pid") == info.get("pid"))
    except AoError:
        return isinstance(info.get("pid"), int) and is_process_running(info["pid"])
    finally:
        ao.close()


@click.command()
@click.option("--no-open", is_flag=True, help="Print the link that signs in, and open nothing.")
@json_option
def dashboard(no_open: bool, as_json: bool) -> None:
    """Open the dashboard in the browser, signed in.

    Over SSH, or where no browser can be shown, the link that signs in is printed: good once, for two minutes.
    """
    ao = client()
    if not as_json:
        browser.show_dashboard(ao, should_open=not no_open)
        return
    link = ao.post("/api/login-links")
    out.print_json({"url": ao.info().get("url"), "link": link["url"], "expiresAt": link["expiresAt"]})
