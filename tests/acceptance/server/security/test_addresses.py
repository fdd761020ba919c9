"""A daemon that is reached beyond the loopback: by TLS, or by a person's word."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.server.security.stranger import Stranger


@pytest.fixture
def off(tmp_path: Path) -> Iterator[Sandbox]:
    """No daemon yet."""
    with Sandbox(tmp_path) as box:
        box.repository()
        box.home.make()
        yield box


def test_an_address_that_others_reach_needs_tls_or_a_word(off: Sandbox) -> None:
    remedy = ("0.0.0.0", "--tls", "--tls-cert", "--insecure")
    assert_refused(off.ao("start", "--host", "0.0.0.0", "--port", "0", check=False), 4, *remedy)
    off.home.config.write_text("host: 0.0.0.0\nport: 0\n")
    assert_refused(off.ao("status", check=False), 4, *remedy)
    (off.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo}\ntls: {insecure: true}\n")
    assert_refused(off.ao("start", "--no-open", check=False), 4, *remedy)  # it may have come with the repository
    off.home.config.write_text("host: 0.0.0.0\nport: 0\ntls: {insecure: true}\n")
    assert "http://127.0.0.1:" in off.ao("start", "--no-open").stdout


def test_a_certificate_of_its_own_is_made_once_and_shown(off: Sandbox) -> None:
    said = off.ao("start", "--host", "0.0.0.0", "--port", "0", "--tls").stdout
    info = json.loads(off.home.info.read_text())
    assert info["url"].startswith("https://") and info["fingerprint"] in said and f"{info['url']}/#login=" in said
    folder = off.home.path / "tls"
    assert (folder.stat().st_mode & 0o777, (folder / "key.pem").stat().st_mode & 0o777) == (0o700, 0o600)
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    host, _, port = info["url"].partition("://")[2].partition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
    code = off.request("POST", "/api/login-links", {})["url"].partition("#login=")[2]
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
        Stranger(off, "127.0.0.9").ask("GET", "/healthz")  # without TLS
    off.ao("shutdown")
    off.home.config.write_text("host: 0.0.0.0\nport: 0\ntls: {own: true}\n")
    off.ao("status")
    assert json.loads(off.home.info.read_text())["fingerprint"] == info["fingerprint"]


def test_a_certificate_that_is_given(off: Sandbox, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert_refused(
        off.ao("start", "--tls-cert", str(cert), "--tls-key", str(key), check=False), 4, str(cert), "cannot be used"
    )
    assert_refused(off.ao("start", "--tls-cert", str(cert), check=False), 4, "--tls-key")
    off.ao("start", "--tls", "--port", "0")
    off.ao("shutdown")
    for path in (cert, key):
        path.write_bytes((off.home.path / "tls" / path.name).read_bytes())
    said = off.ao("start", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key)).stdout
    assert "https://127.0.0.1" in said and "SHA-256" not in said
    assert_refused(off.ao("start", "--port", "1", check=False), 1, "already runs at https://")
