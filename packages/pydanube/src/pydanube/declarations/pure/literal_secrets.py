"""
Literal secrets in definitions that are stored: they are found by their names.

``${env:NAME}`` and ``${file:NAME}`` refer to secrets of the process that uses the
definition, so no store has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydanube.declarations.pure.problems import Path

_REFERENCE = re.compile(r"\$\{(env|file):[^{}]*\}")
_SECRET_NAME = re.compile(
    r"(?i)(^|[_.-])(password|passwd|passphrase|secret|secrets|token|authorization|"
    r"cookie|credential|credentials|signature)([_.-]|$)|"
    r"(api|access|account|private|secret|shared|sas)[_.-]?key|secret"
)
_NOT_SECRET = re.compile(r"(?i)(^|[_.-])(file|files|path|url|name|header|field|type)$")
"""The ends of names whose values only say where a secret is."""
_IN_TEXT = re.compile(
    r"(?i)(?:^|[?&;\s])(password|passwd|pwd|token|api_key|apikey|secret|sig|"
    r"access_key|access_token)=(?!\$\{)[^&;\s]+"
)
"""A secret among the parameters of a URL, or in a connection string."""
_IN_URL = re.compile(r"://[^\s/:@]*:(?!\$\{\}@)(?:(?!://)[^\s@])+@")
"""Up to the next ``://`` only, or many of them would take time by their square."""
_WEBHOOK = re.compile(
    r"(?i)^\s*https?://(?:hooks\.slack\.com/|"
    r"(?:[a-z]+\.)?discord(?:app)?\.com/api/webhooks/|"
    r"[^/\s]+\.webhook\.office\.com/)[^\s{}]+$"
)
"""The URL of a chat's webhook, whose path is the secret."""


def literal_secrets(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places in *value* that have a secret instead of a reference to one."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from literal_secrets(each, (*path, str(name)))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from literal_secrets(each, (*path, number))
    elif isinstance(value, str) and _is_secret(value, path):
        yield path


def _is_secret(text: str, path: Path) -> bool:
    names = [each for each in path if isinstance(each, str)]
    last = names[-1] if names else ""
    without = _REFERENCE.sub("", text)
    if _SECRET_NAME.search(last) and not _NOT_SECRET.search(last):
        # "Bearer ${env:TOKEN}" has the secret in the reference.
        return bool(text) and without == text
    bare = _REFERENCE.sub("${}", text)
    patterns = (_IN_URL, _IN_TEXT, _WEBHOOK)
    return any(each.search(bare) is not None for each in patterns)
