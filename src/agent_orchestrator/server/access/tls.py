"""TLS for TCP: which certificate is used, and whether one is required. The daemon's own is made once, with OpenSSL."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.protocols.host import Host

_CERTIFICATE_DAYS = 3650


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings from options or configuration."""

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
    """SHA-256 of the daemon's own certificate, for people to compare."""


async def choose_certificate(settings: TlsSettings, address: str, folder: Path, host: Host) -> Certificate | None:
    """Return the certificate to serve with, or None for plain HTTP. Raise UsageError if other machines reach the address without TLS or
    `insecure`.
    """
    if bool(settings.cert) != bool(settings.key):
        raise UsageError("a certificate and its key go together", "give both --tls-cert FILE and --tls-key FILE")
    if settings.cert and settings.key:
        return _checked_certificate(Certificate(_absolute(settings.cert), _absolute(settings.key)))
    if settings.own:
        return await _own_certificate(address, folder, host)
    if not (settings.insecure or is_loopback(address)):
        raise UsageError(
            f"other machines reach {address}, and anybody on the way could read along",
            "add --tls, or --tls-cert FILE with --tls-key FILE, or --insecure",
        )
    return None


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _absolute(path: str) -> Path:
    """Return an absolute path with `~` expanded, or raise UsageError."""
    expanded = Path(path).expanduser()
    if not expanded.is_absolute():
        raise UsageError(f"{path} is no whole path", "write it from the root: /etc/…, or ~/…")
    return expanded


def _checked_certificate(certificate_files: Certificate) -> Certificate:
    """Return the certificate if OpenSSL can load it with its key; raise UsageError otherwise."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate_files.cert, certificate_files.key, password=_refuse_passphrase
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the certificate {certificate_files.cert} with the key {certificate_files.key} cannot be used: {reason}",
            "give two PEM files that belong together, the key without a passphrase",
        ) from None
    return certificate_files


def _refuse_passphrase() -> str:
    """Raise ValueError instead of asking for a passphrase."""
    raise ValueError("the key has a passphrase")


async def _own_certificate(address: str, folder: Path, host: Host) -> Certificate:
    """Return the daemon's own certificate with its fingerprint, creating it if missing."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    if not (cert.exists() and key.exists()):
        await _create_certificate(address, cert, key, host)
    _checked_certificate(Certificate(cert, key))
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(cert.read_text())).hexdigest().upper()
    return Certificate(cert, key, ":".join(digest[start : start + 2] for start in range(0, len(digest), 2)))


async def _create_certificate(address: str, cert: Path, key: Path, host: Host) -> None:
    """Create a self-signed certificate for this machine's names with OpenSSL."""
    cert.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = dict.fromkeys(
        [
            "DNS:localhost",
            "IP:127.0.0.1",
            "IP:::1",
            *_alternative_names(socket.gethostname()),
            *_alternative_names(address),
        ]
    )
    new_cert, new_key = cert.with_suffix(".new"), key.with_suffix(".new")
    result = await host.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"),
            *(
                "-days",
                str(_CERTIFICATE_DAYS),
                "-subj",
                "/CN=agent-orchestrator",
                "-addext",
                f"subjectAltName={','.join(names)}",
            ),
            *("-addext", "extendedKeyUsage=serverAuth", "-keyout", str(new_key), "-out", str(new_cert)),
        ]
    )
    if result.code:
        last_line = result.err.decode(errors="replace").strip().splitlines()[-1:]
        raise AoError(
            f"openssl could make no certificate: {''.join(last_line)}", "give your own: --tls-cert and --tls-key"
        )
    new_key.chmod(0o600)
    new_key.replace(key)
    new_cert.replace(cert)


def _alternative_names(name: str) -> list[str]:
    """Return a host as subject alternative names: none if it is neither a name nor a usable address."""
    try:
        return [] if ipaddress.ip_address(name).is_unspecified else [f"IP:{name}"]
    except ValueError:
        is_plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
        return [f"DNS:{name}"] if is_plain else []
