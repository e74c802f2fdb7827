"""The settings of etcd."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.metadata.etcd.config import EtcdConfig, parse_endpoints


def test_endpoints_are_urls_with_a_port():
    found = parse_endpoints(" http://a:1, https://b.example ,c:2,https://[::1]:3/,")
    assert list(map(str, found)) == [
        "http://a:1",
        "https://b.example:2379",
        "http://c:2",
        "https://[::1]:3",
    ]


@pytest.mark.parametrize(
    "text",
    ["ftp://a:1", "http://", "http://a:x", "http://u:p@a:1", "http://a:1/v3", "[::1"],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InvalidConfig, match=r"^endpoints: expected http://HOST:PORT"):
        EtcdConfig(endpoints=text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"certificate_file": "c"}, "certificate_file and key_file: expected both"),
        ({"endpoints": "http://a", "ca_file": "c"}, "endpoints: expected https://"),
        ({"user": "u"}, "password: expected the password of user 'u'"),
        ({"password": "p"}, "user: expected the name of a user"),
        (
            {"user": "u", "password": "p", "password_file": "f"},
            "password and password_file: expected only one",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(InvalidConfig, match=message):
        EtcdConfig(**settings)


def test_the_password_may_be_in_a_file(tmp_path):
    path = tmp_path / "password"
    config = EtcdConfig(user="u", password_file=str(path))
    with pytest.raises(InvalidConfig, match=r"password_file: .* cannot be read"):
        config.read_password()
    path.write_text("open sesame\n")
    assert config.read_password() == "open sesame"
