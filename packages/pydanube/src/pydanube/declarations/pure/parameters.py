"""
The substitution of ``${name}``, ``${env:NAME}`` and ``${file:NAME}`` in a file.

Parameters are declared under ``parameters`` with a default, or without one if they are
required.  Secrets come from the environment or from files of one directory, and are
redacted in everything that is shown or stored.  ``$${`` is an escaped ``${``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from pydanube.declarations.pure.problems import Path, Problems
from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.redaction import mask
from pydanube.model.suggestions import did_you_mean

PARAMETERS = "parameters"

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"true": True, "false": False}
_SECRETS = ("env", "file")


def _no_files(name: str) -> str:
    raise InvalidConfig(f"there is no directory for the file {name}")


class Substitution:
    """Substitutes parameters and secrets in the values of a file."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        given: Mapping[str, str],
        environment: Mapping[str, str],
        problems: Problems,
        read_file: Callable[[str], str] = _no_files,
        *,
        keeps_references: bool = False,
    ) -> None:
        """
        *read_file* returns the secret in a file, or raises InvalidConfig.

        With *keeps_references*, only parameters are substituted: the result has the
        references to secrets, for a later substitution without parameters.
        """
        self._keeps_references = keeps_references
        self._environment = environment
        self._read_file = read_file
        self._problems = problems
        self._secrets: set[str] = set()
        self._values = self._parameters(tree.get(PARAMETERS), given)

    def redact(self, text: str) -> str:
        """Return *text* with the secrets used so far masked, also in URLs and JSON."""
        forms = [
            form
            for value in self._secrets
            for form in (value, quote(value, safe=""), json.dumps(value)[1:-1])
        ]
        return mask(text, forms)

    def substitute(self, value: Any, path: Path = ()) -> Any:
        """Return *value*, which is at *path*, with all substitutions."""
        if isinstance(value, dict):
            return {
                key: self.substitute(each, (*path, key))
                for key, each in value.items()
                if (*path, key) != (PARAMETERS,)
            }
        if isinstance(value, list):
            return [self.substitute(each, (*path, at)) for at, each in enumerate(value)]
        return self._substitute_text(value, path) if isinstance(value, str) else value

    def _substitute_text(self, text: str, path: Path) -> Any:
        whole = _PLACEHOLDER.fullmatch(text)
        if whole is not None and whole[1] is not None:
            # A placeholder by itself keeps its type.
            return self._value(whole[1].strip(), path)
        return self._expand(text, lambda name: self._value(name, path))

    def _value(self, name: str, path: Path) -> Any:
        kind, colon, rest = name.partition(":")
        if colon and kind in _SECRETS:
            return self._secret(kind, rest.strip(), path)
        if name in self._values:
            return self._values[name]
        self._problems.add(
            path,
            f"${{{name}}} is not a parameter{did_you_mean(name, self._values) or '.'} "
            f"Declare it under '{PARAMETERS}', or write ${{env:{name}}} for an "
            f"environment variable, or ${{file:{name}}} for a file with a secret",
        )
        return ""

    def _secret(self, kind: str, name: str, path: Path) -> str:
        if self._keeps_references:
            return f"${{{kind}:{name}}}"
        try:
            value = self._variable(name) if kind == "env" else self._read_file(name)
        except InvalidConfig as error:
            self._problems.add(path, str(error))
            return ""
        self._secrets.add(value)
        return value

    def _variable(self, name: str) -> str:
        value = self._environment.get(name)
        if not value:
            known = [each for each in self._environment if not each.startswith("_")]
            raise InvalidConfig(
                f"the environment variable {name} is not set"
                f"{did_you_mean(name, known) or '.'} Set it before the command"
            )
        return value

    def _parameters(self, declared: Any, given: Mapping[str, str]) -> dict[str, Any]:
        if declared is None:
            declared = {}
        if not isinstance(declared, dict):
            self._problems.add((PARAMETERS,), "must be names with their defaults")
            return {}
        for name in given.keys() - declared.keys():
            self._problems.add(
                (PARAMETERS,),
                f"there is no parameter {name}, which --set gives a value"
                f"{did_you_mean(name, declared)}",
            )
        return {
            name: self._parameter(name, default, given)
            for name, default in declared.items()
        }

    def _parameter(self, name: str, default: Any, given: Mapping[str, str]) -> Any:
        path = (PARAMETERS, name)
        if not _NAME.fullmatch(name):
            self._problems.add(
                path, "the name of a parameter consists of letters, digits and _"
            )
        if isinstance(default, dict | list):
            self._problems.add(path, "a default is a string, a number, true or false")
            return ""
        if isinstance(default, str):
            default = self._default(default, path)
        if name in given:
            return self._parse(given[name], default, path)
        if default is None:
            self._problems.add(path, f"has no value; give it with --set {name}=VALUE")
            return ""
        return default

    def _default(self, text: str, path: Path) -> str:
        """Substitute secrets in a default; parameters cannot refer to others."""

        def value_of(name: str) -> Any:
            if name.partition(":")[0] in _SECRETS:
                return self._value(name, path)
            self._problems.add(path, "a default cannot refer to parameters")
            return ""

        return self._expand(text, value_of)

    def _expand(self, text: str, value_of: Callable[[str], Any]) -> str:
        """Return *text* with placeholders replaced by the values of their names."""
        escaped = "$${" if self._keeps_references else "${"
        return _PLACEHOLDER.sub(
            lambda found: (
                escaped if found[1] is None else option_text(value_of(found[1].strip()))
            ),
            text,
        )

    def _parse(self, text: str, default: Any, path: Path) -> Any:
        """Parse a value of --set as the type of the default."""
        try:
            if isinstance(default, bool):
                return _WORDS[text.lower()]
            if isinstance(default, int):
                return int(text)
            if isinstance(default, float):
                return float(text)
        except (KeyError, ValueError):
            kind = {bool: "true or false", int: "a whole number", float: "a number"}
            self._problems.add(path, f"must be {kind[type(default)]}, not {text!r}")
            return default
        return text


def has_reference(value: Any) -> bool:
    """Return whether *value* has a reference to a secret somewhere."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return any(map(has_reference, parts))
    return isinstance(value, str) and any(
        (found[1] or "").partition(":")[0].strip() in _SECRETS
        for found in _PLACEHOLDER.finditer(value)
    )


def parse_set(texts: Iterable[str]) -> dict[str, str]:
    """
    Parse texts of the form ``name=value``.

    Raises:
        InvalidRequest: The ``=`` or the name is missing.
    """
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"--set must be NAME=VALUE, not {text!r}")
        given[name.strip()] = value
    return given


def option_text(value: Any) -> str:
    """Return *value* as text in another text, or for an option of Spark."""
    return str(value).lower() if isinstance(value, bool) else str(value)
