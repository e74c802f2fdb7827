"""The API key in a file."""

from __future__ import annotations

import logging

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.security.api_keys import make_key, parse_key
from pydanube_broker.servers.connections.bootstrap_key import (
    create_bootstrap_key,
    open_bootstrap_key,
)

OTHER = make_key(b"x" * 40)


def test_without_a_file_there_is_no_key():
    assert open_bootstrap_key("") is None


def test_a_missing_file_is_created_for_its_owner(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "key"
    opened = open_bootstrap_key(str(file))
    key = parse_key(file.read_text().strip())
    assert opened.is_key(key)
    assert not opened.is_key(OTHER)
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    assert str(file) in caplog.text
    assert key.text not in caplog.text
    # The next start uses the same key.
    assert open_bootstrap_key(str(file)).is_key(key)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_refused(tmp_path, mode):
    file = tmp_path / "key"
    file.write_text(OTHER.text)
    file.chmod(mode)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        open_bootstrap_key(str(file))


@pytest.mark.parametrize("text", ["", "secret", OTHER.text * 2])
def test_a_file_without_a_key_is_refused(tmp_path, text):
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(InvalidConfig, match="contains no API key") as refused:
        open_bootstrap_key(str(file))
    assert not text or text not in str(refused.value)


def test_a_file_that_cannot_be_created_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="cannot be read or created"):
        open_bootstrap_key(str(tmp_path / "missing" / "key"))


def test_a_key_in_a_file_is_never_replaced(tmp_path):
    file = tmp_path / "bootstrap.key"
    create_bootstrap_key(file)
    text = file.read_text()
    with pytest.raises(FileExistsError):
        create_bootstrap_key(file)
    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o600
    assert open_bootstrap_key(str(file)).is_key(parse_key(text.strip()))
    assert list(tmp_path.iterdir()) == [file]
