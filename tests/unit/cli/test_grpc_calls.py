"""Where the tools of those who come from Danube connect to, and as whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydanube.cli.grpc_calls import NOBODY, Credentials, parse_url
from pydanube.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "target", "is_tls"),
    [
        ("http://127.0.0.1:6650", "127.0.0.1:6650", False),
        ("https://broker:6650/", "broker:6650", True),
        ("0.0.0.0:50051", "0.0.0.0:50051", False),
        ("http://[::1]:6650", "[::1]:6650", False),
    ],
)
def test_a_url_may_lack_its_scheme(url, target, is_tls):
    assert parse_url(url) == (target, is_tls)


@pytest.mark.parametrize("url", ["", "broker", "http://broker", "ftp://x:1", "x:y"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(InvalidRequest, match="is not a URL"):
        parse_url(url)


def test_credentials_come_from_the_variables_of_the_original():
    credentials = Credentials.from_environment(
        {
            "DANUBE_ADMIN_TOKEN": "secret",
            "DANUBE_ADMIN_API_KEY": "older",
            "DANUBE_ADMIN_TLS": "true",
            "DANUBE_ADMIN_DOMAIN": "broker.example",
            "DANUBE_ADMIN_CA": "ca.pem",
            "DANUBE_ADMIN_CERT": "cert.pem",
            "DANUBE_ADMIN_KEY": "key.pem",
        }
    )
    assert credentials == Credentials(
        token="secret",
        is_tls=True,
        domain="broker.example",
        ca=Path("ca.pem"),
        certificate=Path("cert.pem"),
        key=Path("key.pem"),
    )


def test_an_api_key_stands_for_a_token():
    known = Credentials.from_environment({"DANUBE_ADMIN_API_KEY": "older"})
    assert known.token == "older"
    assert Credentials.from_environment({}) == NOBODY
