"""No secret stays in values and texts, whatever its form."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from pydanube_cli.diagnosis.secret_removal import SecretRemover, is_secret_name

SECRET = 'Tr0ub4dor &"3/x'


@pytest.mark.parametrize(
    "source",
    [
        {"AWS_SECRET_ACCESS_KEY": SECRET},
        {"metadata.etcd.password": SECRET},
        {"storage.remote.options": {"account_key": SECRET}},
        {"DANUBE_URL": f"danube://user:{quote(SECRET, safe='')}@broker:6651"},
        [f"danube://:{quote(SECRET)}@broker:6651"],
    ],
)
def test_known_secrets_are_removed_wherever_they_appear(source: object) -> None:
    remover = SecretRemover(source)
    forms = {SECRET, quote(SECRET), quote(SECRET, safe=""), json.dumps(SECRET)[1:-1]}
    for form in forms:
        assert form not in remover.clean_text(f"refused {form} at the store")
    cleaned = json.dumps(remover.clean(source))
    assert not any(form in cleaned for form in forms)


@pytest.mark.parametrize(
    "text",
    [
        "connecting to redis://admin:s3cr3t/@x@host:6379/0",
        "GET http://host/iceberg?signature=s3cr3t&x=1",
        "https://account.blob.example/c?sv=1&sig=s3cr3t",
        '{"event": "refused", "api_key": "s3cr3t"}',
        r'{"event": "sent {\"token\": \"s3cr3t\"}"}',
        "Authorization: Bearer s3cr3t.x",
        "authorization=Basic s3cr3t==",
        "password = 's3cr3t and more'",
        "danube_0123456789abcdef_s3cr3t",
        "token eyJhbGciOi.eyJs3cr3t.s3cr3t ended",
        "-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----",
        "-----BEGIN EC PRIVATE KEY-----\ns3cr3t",
        "s3cr3t\n-----END RSA PRIVATE KEY-----\nnext line",
    ],
)
def test_unknown_secrets_are_removed_by_their_form(text: str) -> None:
    cleaned = SecretRemover().clean_text(text)
    assert "s3cr3t" not in cleaned
    assert "***" in cleaned


def test_what_is_no_secret_stays() -> None:
    remover = SecretRemover({"DANUBE_TOKEN": "abc"})
    kept = {
        "security.api_keys": True,
        "tls.key_file": "/etc/danube/server.key",
        "AWS_ACCESS_KEY_ID": "AKIA123",
        "storage.remote.options": {"region": "eu-west-1"},
        "names": ["/default/orders", "abc"],
        "count": 3,
    }
    assert remover.clean(kept) == kept
    line = "sealed /default/orders at http://broker:8080/readyz after 3 ms"
    assert remover.clean_text(line) == line


def test_options_of_stores_are_secret_unless_they_are_known() -> None:
    given = {"options": {"endpoint": "http://s3", "new_kind_of_pass": "s3cr3t"}}
    assert SecretRemover().clean(given) == {
        "options": {"endpoint": "http://s3", "new_kind_of_pass": "***"}
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OPENAI_API_KEY", True),
        ("metadata.etcd.password", True),
        ("metadata.etcd.password_file", False),
        ("listen.stream_port", False),
        ("security.jwt.keys_url", False),
    ],
)
def test_secret_names(name: str, *, expected: bool) -> None:
    assert is_secret_name(name) is expected
