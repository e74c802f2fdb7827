"""Certificates and their keys in PEM files."""

from __future__ import annotations

import ssl
from pathlib import Path

from pydanube.model.errors import InvalidRequest


def check_readable(**names: str | None) -> None:
    """
    Check that files can be read: their names, by setting; empty: none.

    Raises:
        InvalidRequest: A file cannot be read; the text begins with its setting.
    """
    for setting, name in names.items():
        if not name:
            continue
        try:
            with Path(name).open("rb"):
                pass
        except OSError as error:
            raise InvalidRequest(
                f"{setting}: the file {name} cannot be read: {error.strerror or error}"
            ) from error


def load_certificate(
    context: ssl.SSLContext, certificate_file: str, key_file: str
) -> None:
    """
    Load a certificate, which the owner of *context* presents, and its key.

    Raises:
        InvalidRequest: A file is damaged, or the key is another certificate's or has a
            password; the text begins with the setting.
    """
    try:
        context.load_cert_chain(certificate_file, key_file, password=_refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidRequest(
                f"key_file: {key_file} is not the key of the certificate in "
                f"{certificate_file}"
            ) from error
        raise InvalidRequest(
            "certificate_file: expected a certificate in PEM format, and its key in "
            f"key_file, got {certificate_file} and {key_file} "
            f"({error.reason or error})"
        ) from error


def _refuse_password() -> str:
    raise InvalidRequest(
        "key_file: the key is encrypted with a password; write it to a file without "
        "one, that only its owner can read"
    )
