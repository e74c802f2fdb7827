"""
The removal of secrets from what leaves a machine, such as a debug bundle.

Secrets are found in three ways, because none of them finds all: by the name of the
setting or variable, by their known value wherever it appears, and by their form.  A
doubtful value is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from pydanube.model.redaction import MASK, mask

VALUE_CHARACTERS_MIN = 5
"""Shorter secrets are removed by their names only: their values are in many words."""
OPEN_OPTIONS = frozenset(
    {"bucket", "container", "default_storage_class", "endpoint", "region", "root"}
)
"""The options of object stores that are no secrets."""

_NAME = (
    r"(?:secret|passw(?:or)?d|passphrase|token|credential|authorization|signature"
    r"|(?:api|access|account|private|encryption|customer|shared)[_.-]?key|cookie"
    r"|webhook|dsn|sas\b)"
)
_SECRET_NAME = re.compile(rf"{_NAME}|_key$|^key$|_sas$|^pgpass", re.IGNORECASE)
_OPEN_NAME = re.compile(r"_(file|path|dir|id|url)s?$", re.IGNORECASE)
# The lengths are bounded because the time would grow with their squares.
_USER_INFO = re.compile(r"(?<=://)[^\s\"'<>]{0,2000}@")
_FORMS = (
    # Private keys in PEM, also those whose beginning is cut off.
    (
        re.compile(
            r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|\Z)"
            r"|\A(?:(?!-----BEGIN).)*?-----END [^-]*PRIVATE KEY-----",
            re.DOTALL,
        ),
        MASK,
    ),
    (_USER_INFO, f"{MASK}@"),
    (re.compile(r"\b(danube_[0-9a-f]{16}_)[A-Za-z0-9_-]+"), rf"\1{MASK}"),
    # JSON Web Tokens.
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), MASK),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]+", re.IGNORECASE), rf"\1 {MASK}"),
    # Values after a secret's name, as in password=x, "token": "x" and &sig=x.
    (
        re.compile(
            rf"([\w.-]{{0,64}}{_NAME}[\w.-]{{0,64}}(?<!_file)(?<!_path)(?<!_id)\\?[\"']?\s*[=:]\s*)"
            r"(\\?\"(?:[^\"\\]|\\[^\"])*\\?\"|'[^']*'|[^\s,;&}\"']+)",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(r"([?&](?:[\w.-]{0,64}key|sig|code)=)[^&\s\"']+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting or variable *name* is a secret."""
    return bool(_SECRET_NAME.search(name)) and not _OPEN_NAME.search(name)


class SecretRemover:
    """Removes the secrets of some settings and variables from values and texts."""

    def __init__(self, *sources: Any) -> None:
        """Find the secrets in *sources*: mappings, lists and URLs as JSON has them."""
        found = {each.strip() for source in sources for each in _secrets_in(source)}
        self._secrets = [
            form
            for secret in found
            if len(secret) >= VALUE_CHARACTERS_MIN
            for form in _forms_of(secret)
        ]

    def clean(self, value: Any, name: str = "") -> Any:
        """Return *value*, which JSON can represent, without secrets."""
        if isinstance(value, Mapping):
            are_options = name.endswith("options")
            return {
                self.clean_text(str(key)): MASK
                if are_options and key not in OPEN_OPTIONS
                else self.clean(each, str(key))
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self.clean(each, name) for each in value]
        if isinstance(value, str):
            return MASK if value and is_secret_name(name) else self.clean_text(value)
        return value

    def clean_text(self, text: str) -> str:
        """Return *text* without secrets."""
        text = mask(text, self._secrets)
        for form, replacement in _FORMS:
            text = form.sub(replacement, text)
        return text


def _secrets_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if name.endswith("options") and key not in OPEN_OPTIONS:
                yield str(each)
            yield from _secrets_in(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _secrets_in(each, name)
    elif isinstance(value, str):
        if is_secret_name(name):
            yield value
        for match in _USER_INFO.finditer(value):
            user, _, password = match[0].removesuffix("@").partition(":")
            yield password or user


def _forms_of(secret: str) -> Iterable[str]:
    """Return the texts that a *secret* has in URLs and in JSON."""
    plain = {secret, unquote(secret)}
    return {
        form
        for each in plain
        for form in (each, quote(each), quote(each, safe=""), json.dumps(each)[1:-1])
    }
