"""The settings of ZooKeeper."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_zookeeper.config import ZookeeperConfig, parse_endpoints


def test_endpoints_are_hosts_with_a_port():
    found = parse_endpoints(" a:1, b.example ,[::1]:3,[::1],")
    assert found == ("a:1", "b.example:2181", "[::1]:3", "[::1]:2181")


@pytest.mark.parametrize("text", ["http://a:1", "a:x", "u:p@a:1", "a:1/chroot", "[::1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InvalidConfig, match=r"^endpoints: expected HOST:PORT"):
        ZookeeperConfig(endpoints=text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ca_file": "c"}, "tls: expected true, because ca_file"),
        ({"tls": True, "certificate_file": "c"}, "certificate_file and key_file"),
        ({"user": "u"}, "password: expected the password of user 'u'"),
        ({"user": "a:b", "password": "p"}, "user: expected a name without a colon"),
        ({"password": "p"}, "user: expected the name of a user"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(InvalidConfig, match=message):
        ZookeeperConfig(**settings)


def test_errors_name_the_whole_setting(tmp_path):
    config = ZookeeperConfig(user="u", password_file=str(tmp_path / "password"))
    with pytest.raises(InvalidConfig, match=r"^metadata\.zookeeper\.password_file: "):
        config.read_password()
    assert config.location == "ZooKeeper, cluster 'danube'"
