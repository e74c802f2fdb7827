"""`danube certs init` writes certificates that TLS accepts, and overwrites nothing."""

import ssl
import stat

import pytest
from cryptography import x509

from support.drivers.commands import danube


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("work") / "certs"
    done = danube("certs", "init", str(directory), "--host", "broker.example")
    assert done.returncode == 0, done.stderr
    assert f"ca_file={directory}/ca.pem" in done.stdout
    return directory


def test_only_the_owner_can_read_the_keys(directory):
    names = sorted(each.name for each in directory.iterdir())
    assert names == [
        "ca-key.pem",
        "ca.pem",
        "client-key.pem",
        "client.pem",
        "server-key.pem",
        "server.pem",
    ]
    for path in directory.glob("*-key.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_server_certificate_is_for_this_machine_and_the_given_host(directory):
    data = (directory / "server.pem").read_bytes()
    extension = x509.load_pem_x509_certificate(data).extensions
    found = extension.get_extension_for_class(x509.SubjectAlternativeName).value
    names = found.get_values_for_type(x509.DNSName)
    assert {"localhost", "broker.example"} <= set(names)
    addresses = found.get_values_for_type(x509.IPAddress)
    assert "127.0.0.1" in map(str, addresses)


@pytest.mark.parametrize("requires_client", [False, True])
def test_both_sides_accept_the_certificates_with_strict_checks(
    directory, requires_client
):
    client = ssl.create_default_context(cafile=directory / "ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "server.pem", directory / "server-key.pem")
    if requires_client:
        client.load_cert_chain(directory / "client.pem", directory / "client-key.pem")
        server.load_verify_locations(directory / "ca.pem")
        server.verify_mode = ssl.CERT_REQUIRED
        server.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="broker.example"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    # Two round trips are more than the handshake needs.
    for end in ends * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert [end.version() for end in ends] == ["TLSv1.3", "TLSv1.3"]
    peer = ends[1].getpeercert()
    assert bool(peer) is requires_client


def test_files_are_not_overwritten(directory):
    before = (directory / "ca-key.pem").read_bytes()
    done = danube("certs", "init", str(directory))
    assert done.returncode != 0
    assert "exists; choose another directory" in done.stderr
    assert (directory / "ca-key.pem").read_bytes() == before


def test_malformed_host_is_refused(tmp_path):
    done = danube("certs", "init", str(tmp_path), "--host", "bröker")
    assert done.returncode != 0
    assert "is not a host name in ASCII" in done.stderr
    assert not list(tmp_path.iterdir())
