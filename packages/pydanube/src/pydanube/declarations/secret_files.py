"""
The files of secrets, as Docker, Kubernetes and systemd provide them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pydanube.model.errors import InvalidConfig

DIRECTORY_VARIABLE = "DANUBE_SECRETS"
"""The environment variable with the directory of the files."""
DIRECTORY_DEFAULT = "/run/secrets"

BYTES_MAX = 64 * 1024
"""The maximum size of a secret."""


def secret_files_of(environment: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that reads a file of the directory in *environment*."""
    directory = Path(environment.get(DIRECTORY_VARIABLE) or DIRECTORY_DEFAULT)
    return partial(read_secret, directory)


def read_secret(directory: Path, name: str) -> str:
    """
    Return the text of the file *name* in *directory*, without the last line break.

    Raises:
        InvalidConfig: There is no such file, or it has no text or too much.
    """
    if not name or "/" in name or name in (".", ".."):
        raise InvalidConfig(
            f"{name!r} is not the name of a file in {directory}; the variable "
            f"{DIRECTORY_VARIABLE} sets another directory"
        )
    file = directory / name
    try:
        with file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidConfig(
            f"the secret {file} cannot be read: {error.strerror}; the variable "
            f"{DIRECTORY_VARIABLE} sets another directory"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"the secret {file} is not UTF-8") from error
    if not text or len(content) > BYTES_MAX:
        raise InvalidConfig(
            f"the secret {file} must have from 1 to {BYTES_MAX} bytes, and has "
            f"{'more' if text else 'none'}"
        )
    return text
