"""The settings of authentication."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube_broker.servers.settings.config import load_config
from pydanube_broker.servers.settings.security_config import JwtConfig, SecurityConfig

JWT = {"issuer": "https://i.example", "audience": "danube", "keys_file": "keys.json"}


def test_security_is_off_by_default():
    config = load_config(None, {}, {})
    assert not config.security.enabled
    assert config.security == SecurityConfig()


def test_settings_come_from_the_environment():
    environment = {
        "DANUBE_SECURITY__ENABLED": "true",
        "DANUBE_SECURITY__SUPERUSERS": "alice, spiffe://example/admin",
        "DANUBE_SECURITY__JWT__ISSUER": "https://i.example",
        "DANUBE_SECURITY__JWT__AUDIENCE": "danube",
        "DANUBE_SECURITY__JWT__KEYS_URL": "https://i.example/keys",
        # These are for clients.
        "DANUBE_API_KEY": "x",
        "DANUBE_TOKEN": "x",
    }
    security = load_config(None, environment, {}).security
    assert security.enabled
    assert security.superuser_names == {"alice", "spiffe://example/admin"}
    assert security.jwt.rules.issuer == "https://i.example"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": ""}, "expected the issuer"),
        ({"audience": ""}, "expected the audience"),
        ({"keys_file": ""}, "got neither"),
        ({"keys_url": "https://i.example/keys"}, "got both"),
        ({"algorithms": "HS256"}, "got 'HS256'"),
        ({"algorithms": "RS256,none"}, "got 'none'"),
        ({"algorithms": " , "}, "at least one"),
        ({"keys_file": "", "keys_url": "http://i.example/keys"}, "https://"),
        ({"keys_file": "", "keys_url": "file:///etc/passwd"}, "https://"),
        ({"keys_file": "", "keys_url": "https://"}, "https://"),
        ({"keys_file": "", "keys_url": "http://[::1"}, "https://"),
        ({"keys_file": "", "keys_url": "http://127.0.0.1.example/"}, "https://"),
    ],
)
def test_settings_of_tokens_are_checked(changes, reason):
    with pytest.raises(InvalidConfig, match=reason):
        JwtConfig(**(JWT | changes))


def test_names_of_superusers_are_checked():
    with pytest.raises(InvalidConfig, match="superusers: expected"):
        SecurityConfig(superusers="alice,bootstrap")


@pytest.mark.parametrize(
    ("principal", "is_superuser"),
    [
        (Principal("alice", "token"), True),
        (Principal("alice", "certificate"), True),
        (Principal("bob", "token", groups=("alice",)), False),
        (Principal("bootstrap", "api_key"), True),
        (Principal("bootstrap", "token"), False),
        (Principal("alice", "anonymous"), False),
        (ANONYMOUS, False),
    ],
)
def test_superusers(principal, is_superuser):
    config = SecurityConfig(enabled=True, superusers="alice")
    assert config.is_superuser(principal) is is_superuser
