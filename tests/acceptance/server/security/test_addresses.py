"""A daemon that listens beyond the loopback: with TLS, or explicitly without."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.server.security.tcp_client import TcpClient


@pytest.fixture
def stopped_box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a repository and a home without a running daemon."""
    with Sandbox(tmp_path) as box:
        box.repository()
        box.home.create_folders()
        yield box


def test_an_address_beyond_the_loopback_needs_tls_or_insecure(stopped_box: Sandbox) -> None:
    remedy = ("0.0.0.0", "--tls", "--tls-cert", "--insecure")
    assert_refused(stopped_box.ao("start", "--host", "0.0.0.0", "--port", "0", check=False), 4, *remedy)
    stopped_box.home.config.write_text("host: 0.0.0.0\nport: 0\n")
    assert_refused(stopped_box.ao("status", check=False), 4, *remedy)
    (stopped_box.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo}\ntls: {insecure: true}\n")
    assert_refused(
        stopped_box.ao("start", "--no-open", check=False), 4, *remedy
    )  # it may have come with the repository
    stopped_box.home.config.write_text("host: 0.0.0.0\nport: 0\ntls: {insecure: true}\n")
    assert "http://127.0.0.1:" in stopped_box.ao("start", "--no-open").stdout


def test_a_self_signed_certificate_is_created_once_and_shown(stopped_box: Sandbox) -> None:
    output = stopped_box.ao("start", "--host", "0.0.0.0", "--port", "0", "--tls").stdout
    info = json.loads(stopped_box.home.daemon_info.read_text())
    assert info["url"].startswith("https://") and info["fingerprint"] in output and f"{info['url']}/#login=" in output
    folder = stopped_box.home.path / "tls"
    assert (folder.stat().st_mode & 0o777, (folder / "key.pem").stat().st_mode & 0o777) == (0o700, 0o600)
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    host, _, port = info["url"].partition("://")[2].partition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
    code = stopped_box.request("POST", "/api/login-links", {})["url"].partition("#login=")[2]
    connection.request("POST", "/api/login", json.dumps({"code": code}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    value, *attributes = answer.headers["set-cookie"].split("; ")
    page = json.loads(answer.read())["page"]
    assert value.startswith(f"__Host-ao_session_{port}=") and "Secure" in attributes
    connection.request("GET", "/api/me", headers={"Cookie": value, "X-AO-Page": page})
    assert json.loads(connection.getresponse().read())["kind"] == "login"
    connection.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        http.client.HTTPSConnection(host, int(port), timeout=60).request("GET", "/healthz")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        TcpClient(stopped_box, "127.0.0.9").ask("GET", "/healthz")  # without TLS
    stopped_box.ao("shutdown")
    stopped_box.home.config.write_text("host: 0.0.0.0\nport: 0\ntls: {own: true}\n")
    stopped_box.ao("status")
    assert json.loads(stopped_box.home.daemon_info.read_text())["fingerprint"] == info["fingerprint"]


def test_a_provided_certificate_is_used(stopped_box: Sandbox, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert_refused(
        stopped_box.ao("start", "--tls-cert", str(cert), "--tls-key", str(key), check=False),
        4,
        str(cert),
        "cannot be used",
    )
    assert_refused(stopped_box.ao("start", "--tls-cert", str(cert), check=False), 4, "--tls-key")
    stopped_box.ao("start", "--tls", "--port", "0")
    stopped_box.ao("shutdown")
    for path in (cert, key):
        path.write_bytes((stopped_box.home.path / "tls" / path.name).read_bytes())
    output = stopped_box.ao("start", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key)).stdout
    assert "https://127.0.0.1" in output and "SHA-256" not in output
    assert_refused(stopped_box.ao("start", "--port", "1", check=False), 1, "already runs at https://")
