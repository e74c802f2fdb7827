"""The URLs of the broker for clients."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from errno import EADDRINUSE

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.servers.settings.addresses import (
    addresses_of,
    binding,
    check_exposure,
    http_hosts_of,
    url_of,
)
from pydanube_broker.servers.settings.config import (
    BrokerConfig,
    ListenConfig,
    TlsConfig,
)
from pydanube_broker.servers.settings.security_config import SecurityConfig


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:6650"),
        ("broker.example", "http://broker.example:6650"),
        ("::1", "http://[::1]:6650"),
        ("0.0.0.0", f"http://{socket.gethostname()}:6650"),
        ("::", f"http://{socket.gethostname()}:6650"),
    ],
)
def test_url_has_scheme_reachable_host_and_port(host, url):
    assert url_of(host, 6650) == url


def test_clients_connect_to_the_listening_address_by_default():
    found = addresses_of("127.0.0.1", 6650, advertised_url="", connect_url="")
    assert found.broker_url == found.connect_url == "http://127.0.0.1:6650"


def test_clients_connect_to_the_advertised_url():
    advertised = "https://broker.example:443"
    found = addresses_of("0.0.0.0", 6650, advertised_url=advertised, connect_url="")
    assert found.broker_url == found.connect_url == advertised


def test_connect_url_differs_behind_a_proxy():
    found = addresses_of(
        *("127.0.0.1", 6650), advertised_url="", connect_url="http://proxy:80"
    )
    assert found.broker_url == "http://127.0.0.1:6650"
    assert found.connect_url == "http://proxy:80"


def test_http_hosts_are_the_names_in_the_settings():
    listens = ListenConfig(
        host="broker.example",
        http_hosts="a.example, b.example",
        advertised_url="http://outside.example:6650",
        connect_url="http://proxy.example:6650",
    )
    names = {"a.example", "b.example", "broker.example", "outside.example"}
    names |= {"proxy.example", socket.gethostname()}
    assert set(http_hosts_of(listens)) == names


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_broker_for_its_own_machine_needs_no_security(host):
    check_exposure(BrokerConfig(listen=ListenConfig(host=host)))


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.0.0.1", "broker.example"])
def test_a_broker_for_other_machines_needs_security_or_consent(host):
    with pytest.raises(InvalidConfig, match="--insecure"):
        check_exposure(BrokerConfig(listen=ListenConfig(host=host)))
    check_exposure(BrokerConfig(listen=ListenConfig(host=host, insecure=True)))
    listen = ListenConfig(host=host)
    security = SecurityConfig(enabled=True)
    check_exposure(BrokerConfig(listen=listen, security=security))
    files = {"certificate_file": "a", "key_file": "b", "client_ca_file": "c"}
    for mode in ("optional", "required"):
        tls = TlsConfig(**files, client_certificates=mode)
        with nullcontext() if mode == "required" else pytest.raises(InvalidConfig):
            check_exposure(BrokerConfig(listen=listen, tls=tls))


def test_a_port_that_is_taken_is_explained():
    taken = OSError(EADDRINUSE, "Address already in use")
    with (
        pytest.raises(InvalidConfig) as raised,
        binding("::1", 1, "HTTP", "--http-port"),
    ):
        raise taken
    assert str(raised.value) == (
        "cannot listen on ::1:1 for HTTP: Address already in use; choose another with "
        "--http-port or in the configuration file"
    )
