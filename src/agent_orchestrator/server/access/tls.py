"""TLS for TCP: whose certificate, and whether it is needed at all. The daemon's own is made once, by OpenSSL."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.protocols.host import Host

_DAYS = 3650


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for, by option or configuration."""

    own: bool = False
    cert: str | None = None
    key: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key."""

    cert: Path
    key: Path
    fingerprint: str | None = None
    """SHA-256 of the daemon's own, for people to compare."""


async def certificate(wanted: Wanted, address: str, folder: Path, host: Host) -> Certificate | None:
    """The certificate to serve with; none if there is to be none. An address that other machines reach needs one, or somebody's word."""
    if bool(wanted.cert) != bool(wanted.key):
        raise UsageError("a certificate and its key go together", "give both --tls-cert FILE and --tls-key FILE")
    if wanted.cert and wanted.key:
        return _checked(Certificate(_whole(wanted.cert), _whole(wanted.key)))
    if wanted.own:
        return await _own(address, folder, host)
    if not (wanted.insecure or is_loopback(address)):
        raise UsageError(
            f"other machines reach {address}, and anybody on the way could read along",
            "add --tls, or --tls-cert FILE with --tls-key FILE, or --insecure",
        )
    return None


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _whole(path: str) -> Path:
    whole = Path(path).expanduser()
    if not whole.is_absolute():
        raise UsageError(f"{path} is no whole path", "write it from the root: /etc/…, or ~/…")
    return whole


def _checked(given: Certificate) -> Certificate:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(given.cert, given.key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the certificate {given.cert} with the key {given.key} cannot be used: {reason}",
            "give two PEM files that belong together, the key without a passphrase",
        ) from None
    return given


def _no_password() -> str:
    raise ValueError("the key has a passphrase")


async def _own(address: str, folder: Path, host: Host) -> Certificate:
    cert, key = folder / "cert.pem", folder / "key.pem"
    if not (cert.exists() and key.exists()):
        await _make(address, cert, key, host)
    _checked(Certificate(cert, key))
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(cert.read_text())).hexdigest().upper()
    return Certificate(cert, key, ":".join(digest[place : place + 2] for place in range(0, len(digest), 2)))


async def _make(address: str, cert: Path, key: Path, host: Host) -> None:
    cert.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = dict.fromkeys(["DNS:localhost", "IP:127.0.0.1", "IP:::1", *_names(socket.gethostname()), *_names(address)])
    draft, secret = cert.with_suffix(".new"), key.with_suffix(".new")
    made = await host.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"),
            *("-days", str(_DAYS), "-subj", "/CN=agent-orchestrator", "-addext", f"subjectAltName={','.join(names)}"),
            *("-addext", "extendedKeyUsage=serverAuth", "-keyout", str(secret), "-out", str(draft)),
        ]
    )
    if made.code:
        last = made.err.decode(errors="replace").strip().splitlines()[-1:]
        raise AoError(f"openssl could make no certificate: {''.join(last)}", "give your own: --tls-cert and --tls-key")
    secret.chmod(0o600)
    secret.replace(key)
    draft.replace(cert)


def _names(name: str) -> list[str]:
    """How a certificate names a host; nothing for what is no name."""
    try:
        return [] if ipaddress.ip_address(name).is_unspecified else [f"IP:{name}"]
    except ValueError:
        plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
        return [f"DNS:{name}"] if plain else []
