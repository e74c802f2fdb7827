"""Certificates for servers on this machine, and for their clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
_END = _BEGIN + timedelta(days=36_500)
AN_END_IN_THE_PAST = datetime(2021, 1, 1, tzinfo=UTC)


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def write_certificates(directory, *, end=_END):
    """
    Write the certificates and keys of an authority, a server and a client.

    Those of the server and the client are valid until *end*.

    Returns: The files of each, a certificate and a key, by name.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name_of("ca")
    ca = (
        _builder(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    files = {"ca": _write(directory, "ca", ca, ca_key)}
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name_of(name), ca_name, key, end)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.DNSName("localhost"),
                        x509.IPAddress(ip_address("127.0.0.1")),
                    ]
                ),
                critical=False,
            )
            .add_extension(
                # etcd's JSON API is a client of etcd with the server's certificate.
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            # Python 3.13 requires it.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
            .sign(ca_key, hashes.SHA256())
        )
        files[name] = _write(directory, name, certificate, key)
    return files


def tls_settings(files, client_certificates="optional"):
    """Return the settings of a broker's TLS with *files* of ``write_certificates``."""
    certificate_file, key_file = map(str, files["server"])
    return {
        "certificate_file": certificate_file,
        "key_file": key_file,
        "client_ca_file": str(files["ca"][0]),
        "client_certificates": client_certificates,
    }


def _name_of(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject, issuer, key, end=_END):
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(end)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
    )


def _write(directory, name, certificate, key):
    paths = directory / f"{name}.pem", directory / f"{name}-key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
