"""Certificates for development: an authority, a server and a client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pydanube.model.errors import AlreadyExists, InvalidRequest

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365

NAMES = ("ca", "server", "client")
"""Each is a certificate NAME.pem, with its key in NAME-key.pem."""

_SERVER = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
_CLIENT = [ExtendedKeyUsageOID.CLIENT_AUTH]


def write_development_certificates(
    directory: Path, hosts: Sequence[str], *, now: datetime
) -> None:
    """
    Write new certificates, which are valid from *now*, and their keys to *directory*.

    The certificate of the server is for *hosts*.  Only the owner of the files can read
    the keys.

    Raises:
        AlreadyExists: *directory* has one of the files; nothing was written.
        InvalidRequest: A host is malformed, or a file cannot be written.
    """
    for name in NAMES:
        for path in _paths(directory, name):
            if path.exists():
                raise AlreadyExists(
                    f"{path} exists; choose another directory, or delete all of the "
                    "old certificates and keys"
                )
    alternatives = [_alternative(host) for host in hosts]
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, now)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _certificate(
        "server",
        server_key,
        authority,
        authority_key,
        now,
        usages=_SERVER,
        alternatives=alternatives,
    )
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = _certificate(
        "client",
        client_key,
        authority,
        authority_key,
        now,
        usages=_CLIENT,
        alternatives=[x509.DNSName("client")],
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory, "ca", authority, authority_key)
        _write(directory, "server", server, server_key)
        _write(directory, "client", client, client_key)
    except OSError as error:
        raise InvalidRequest(
            f"the certificates cannot be written to {directory}: "
            f"{error.strerror or error}"
        ) from error


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidRequest(
            f"{host!r} is not a host name in ASCII or an IP address"
        ) from error


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name("Danube development CA")
    return (
        _builder(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    *,
    usages: list[x509.ObjectIdentifier],
    alternatives: list[x509.GeneralName],
) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        authority_key.public_key()
    )
    return (
        _builder(_name(name), authority.subject, key, now, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clocks of other machines may be slow.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _paths(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.pem", directory / f"{name}-key.pem"


def _write(
    directory: Path,
    name: str,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> None:
    certificate_path, key_path = _paths(directory, name)
    key_data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _create(key_path, key_data, 0o600)
    _create(
        certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644
    )


def _create(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
