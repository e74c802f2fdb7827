"""The certificates of a broker: what is refused, and what happens when files change."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.servers.settings.config import TlsConfig, load_config
from pydanube_broker.servers.settings.tls import (
    HANDSHAKING_MAX,
    ServerTls,
    open_tls,
    over_tls,
)
from support.fakes.transports import RecordingTransport
from support.servers.certificates import write_certificates


@pytest.fixture
def files(tmp_path):
    return write_certificates(tmp_path)


def config_of(files, **settings):
    certificate, key = map(str, files["server"])
    return TlsConfig(**{"certificate_file": certificate, "key_file": key, **settings})


def refusal(config):
    with pytest.raises(InvalidConfig) as caught:
        ServerTls(config)
    return str(caught.value)


def test_tls_is_off_by_default():
    config = load_config(None, {}, {})
    assert not config.tls.is_enabled
    assert open_tls(config.tls) is None
    assert config.tls.stream_scheme == "danube"


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"certificate_file": "a"}, "key_file"),
        ({"key_file": "a"}, "certificate_file"),
        ({"client_ca_file": "a"}, "certificate_file"),
    ],
)
def test_settings_that_need_others_name_them(settings, missing):
    flags = {f"tls.{name}": value for name, value in settings.items()}
    with pytest.raises(InvalidConfig, match=rf"config.tls.{missing}: expected a file"):
        load_config(None, {}, flags)


@pytest.mark.parametrize(
    "settings",
    [{"client_certificates": "required"}, {"client_ca_file": "ca.pem"}],
)
def test_client_certificates_need_an_authority_and_the_reverse(settings):
    with pytest.raises(InvalidConfig, match="client_ca_file: expected a file if"):
        TlsConfig(certificate_file="a", key_file="b", **settings)


def test_missing_file_is_refused_with_its_setting_and_path(files, tmp_path):
    missing = str(tmp_path / "missing.pem")
    for setting in ("certificate_file", "key_file"):
        error = refusal(config_of(files, **{setting: missing}))
        assert error.startswith(f"tls.{setting}: the file {missing} cannot be read")


def test_key_of_another_certificate_is_refused(files):
    error = refusal(config_of(files, key_file=str(files["client"][1])))
    assert "is not the key of the certificate in" in error


def test_damaged_files_are_refused(files, tmp_path):
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("not a certificate")
    assert "in PEM format" in refusal(config_of(files, certificate_file=str(damaged)))
    error = refusal(
        config_of(files, client_ca_file=str(damaged), client_certificates="optional")
    )
    assert error.startswith("tls.client_ca_file: expected certificates in PEM format")


def test_key_with_a_password_is_refused(files, tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files["server"][1].read_bytes(), None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    error = refusal(config_of(files, key_file=str(encrypted)))
    assert "the key is encrypted with a password" in error


def test_contexts_refuse_old_versions_of_tls(files):
    context = ServerTls(config_of(files)).context("h2")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.MAXIMUM_SUPPORTED


def test_changed_files_make_a_new_context(files, tmp_path):
    tls = ServerTls(config_of(files))
    before = tls.context("")
    assert tls.context("") is before
    write_certificates(tmp_path)
    assert tls.context("") is not before


def test_damaged_new_files_keep_the_old_certificate_and_are_logged_once(
    files, tmp_path, caplog
):
    tls = ServerTls(config_of(files))
    before = tls.context("")
    files["server"][0].write_text("half a certif")
    assert tls.context("") is before
    assert tls.context("") is before
    logged = [each.message for each in caplog.records]
    assert len(logged) == 1
    assert "the old TLS certificates stay in use" in logged[0]
    assert str(files["server"][0]) in logged[0]
    write_certificates(tmp_path)
    assert tls.context("") is not before


def test_removed_files_keep_the_old_certificate(files):
    tls = ServerTls(config_of(files))
    before = tls.context("")
    files["server"][1].unlink()
    assert tls.context("") is before


async def test_new_connection_closes_the_oldest_of_too_many_handshakes(files):
    accept = over_tls(asyncio.Protocol, ServerTls(config_of(files)))
    transports = [RecordingTransport() for _ in range(HANDSHAKING_MAX + 1)]
    for transport in transports:
        accept().connection_made(transport)
    assert [each.is_aborted for each in transports[:2]] == [True, False]
    assert not any(each.is_closed for each in transports[1:])


async def test_handshake_may_be_given_up_before_the_connection_is_made(files):
    accept = over_tls(asyncio.Protocol, ServerTls(config_of(files)))
    first, *_ = [accept() for _ in range(HANDSHAKING_MAX + 1)]
    transport = RecordingTransport()
    first.connection_made(transport)
    assert transport.is_aborted
