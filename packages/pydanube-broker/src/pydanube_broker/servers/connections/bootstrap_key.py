"""The API key in a file, with which an administrator creates the first ones."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from pydanube.model.errors import InvalidConfig
from pydanube.security.api_keys import (
    ID_BYTES,
    SECRET_BYTES,
    ApiKey,
    make_key,
    parse_key,
)

log = logging.getLogger(__name__)

_FILE_BYTES_MAX = 4096


class BootstrapKey:
    """The key in the file of the setting ``security.bootstrap_key_file``."""

    def __init__(self, key: ApiKey) -> None:
        self._key_id = key.key_id
        self._hash = key.hash

    def is_key(self, key: ApiKey) -> bool:
        """Return whether *key* is this one; the secrets are compared by hash."""
        return key.has_hash(self._hash) and key.key_id == self._key_id


def open_bootstrap_key(name: str) -> BootstrapKey | None:
    """
    Return the key in the file *name*; None: no file is configured.

    If the file does not exist, it is created with a new key; only its owner may read
    it.

    Raises:
        InvalidConfig: The file cannot be read or created, others may read it, or it
            contains no key.
    """
    if not name:
        return None
    path = Path(name)
    try:
        if not path.exists():
            with suppress(FileExistsError):
                create_bootstrap_key(path)
                log.warning(
                    "created the API key of the principal bootstrap in the file %s: "
                    "create other keys with it ('danube security keys create'), and "
                    "keep it secret",
                    path,
                )
        mode = path.stat().st_mode
        text = path.read_bytes()[:_FILE_BYTES_MAX].decode("latin-1").strip()
    except OSError as error:
        raise InvalidConfig(
            f"security.bootstrap_key_file: the file {name} cannot be read or created: "
            f"{error.strerror or error}"
        ) from error
    if mode & 0o077:
        raise InvalidConfig(
            f"security.bootstrap_key_file: other users may read the file {name}: run "
            f"'chmod 600 {name}', and replace the key if somebody has read it"
        )
    key = parse_key(text)
    if key is None:
        raise InvalidConfig(
            f"security.bootstrap_key_file: the file {name} contains no API key; delete "
            "it, and the broker creates one"
        )
    return BootstrapKey(key)


def create_bootstrap_key(path: Path) -> None:
    """
    Create the file *path* with a new key; only its owner may read it.

    The file is complete or absent, because several brokers may start with the same one.

    Raises:
        FileExistsError: The file exists.
        OSError: It cannot be created.
    """
    key = make_key(secrets.token_bytes(ID_BYTES + SECRET_BYTES))
    new = path.with_name(f".{path.name}.{key.key_id}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(key.text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    finally:
        new.unlink()
