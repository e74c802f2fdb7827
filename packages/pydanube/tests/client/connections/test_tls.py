"""TLS to brokers: URLs that ask for it, files, and what failures mean."""

from __future__ import annotations

import ssl

import pytest

from pydanube.client.connections.tls import ClientTls, explain
from pydanube.client.connections.urls import split_url, tls_of
from pydanube.model.errors import ConnectionLost, InvalidRequest, Unauthenticated
from pydanube.model.url_options import UrlOptions
from support.servers.certificates import write_certificates


def test_several_brokers_share_the_query():
    url = "danubes://a,b:6652?ca_file=ca.pem"
    assert split_url(url) == ["danubes://a", "danubes://b:6652"]


def test_brokers_with_and_without_tls_are_refused():
    with pytest.raises(InvalidRequest, match="mixes danube:// and danubes://"):
        split_url("danubes://a,danube://b")


def test_options_of_tls_need_a_url_with_tls():
    with pytest.raises(InvalidRequest, match="ca_file is an option of TLS"):
        tls_of("danube://a", UrlOptions(ca_file="a"))
    assert tls_of("danube://a", UrlOptions()) is None


def test_certificate_and_key_belong_together():
    with pytest.raises(InvalidRequest, match="give both or neither"):
        ClientTls(UrlOptions(certificate_file="a"))


def test_files_that_cannot_be_used_are_refused_with_their_option(tmp_path):
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(InvalidRequest, match=r"ca_file: the file .* cannot be read"):
        ClientTls(UrlOptions(ca_file=missing))
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("damaged")
    with pytest.raises(InvalidRequest, match="ca_file: expected certificates in PEM"):
        ClientTls(UrlOptions(ca_file=str(damaged)))
    files = write_certificates(tmp_path)
    certificate_file, key_file = str(files["client"][0]), str(files["server"][1])
    with pytest.raises(InvalidRequest, match=r"^key_file: .* is not the key of"):
        ClientTls(UrlOptions(certificate_file=certificate_file, key_file=key_file))


def test_client_trusts_only_its_authorities_and_checks_names(tmp_path):
    files = write_certificates(tmp_path)
    context = ClientTls(UrlOptions(ca_file=str(files["ca"][0]))).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def failure_of(reason):
    failure = ssl.SSLError(1, reason)
    failure.reason = reason
    return failure


def test_alerts_of_the_broker_are_explained():
    missing = explain(failure_of("TLSV13_ALERT_CERTIFICATE_REQUIRED"))
    assert isinstance(missing, Unauthenticated)
    assert "set certificate_file and key_file" in str(missing)
    unknown = explain(failure_of("TLSV1_ALERT_UNKNOWN_CA"))
    assert isinstance(unknown, Unauthenticated)
    assert "refuses the certificate of this client" in str(unknown)
    other = explain(failure_of("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"))
    assert isinstance(other, ConnectionLost)
