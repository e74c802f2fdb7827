"""
``${name}`` and ``${env:NAME}``: what is put into a file when it is read.

A parameter is declared under ``parameters`` with its default, or with nothing if it
must be given.  A secret comes from the environment; ``Secrets`` remembers it, so that
it can be taken out of whatever is shown or stored.  ``$${`` stands for ``${``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any

from pydanube.model.suggestions import did_you_mean
from pydanube.pipelines.problems import Path, Problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARAMETERS = "parameters"
HIDDEN = "***"

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_IN_URLS = frozenset(ascii_letters + digits + "-._~")
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Secrets:
    """Texts that nobody may see."""

    values: frozenset[str] = frozenset()

    def redact(self, text: str) -> str:
        """*text* with ``***`` where a secret stands in it, however it is written."""
        for form in sorted(self._forms(), key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text

    def _forms(self) -> set[str]:
        return {
            form
            for value in self.values
            for form in (value, _in_url(value), json.dumps(value)[1:-1])
        }


class Substitution:
    """Puts parameters and secrets into the values of a file."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        given: Mapping[str, str],
        environment: Mapping[str, str],
        problems: Problems,
    ) -> None:
        self._environment = environment
        self._problems = problems
        self._secrets: set[str] = set()
        self._values = self._parameters(tree.get(PARAMETERS), given)

    @property
    def secrets(self) -> Secrets:
        """Those that were used so far."""
        return Secrets(frozenset(self._secrets))

    def substitute(self, value: Any, path: Path = ()) -> Any:
        """*value*, which stands at *path*, with everything put in."""
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
            # Alone, a number stays a number.
            return self._value(whole[1].strip(), path)
        return _PLACEHOLDER.sub(
            lambda found: (
                "${" if found[1] is None else _text(self._value(found[1].strip(), path))
            ),
            text,
        )

    def _value(self, name: str, path: Path) -> Any:
        if name.startswith("env:"):
            return self._secret(name.removeprefix("env:").strip(), path)
        if name in self._values:
            return self._values[name]
        self._problems.add(
            path,
            f"${{{name}}} is not a parameter{did_you_mean(name, self._values) or '.'} "
            f"Declare it under '{PARAMETERS}', or write ${{env:{name}}} for a variable "
            "of the environment",
        )
        return ""

    def _secret(self, variable: str, path: Path) -> str:
        value = self._environment.get(variable)
        if not value:
            known = [name for name in self._environment if not name.startswith("_")]
            self._problems.add(
                path,
                f"the environment has no variable {variable}"
                f"{did_you_mean(variable, known) or '.'} Set it before you start this",
            )
            return ""
        self._secrets.add(value)
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
            self._problems.add(path, "a parameter is named by letters, digits and _")
        if isinstance(default, dict | list):
            self._problems.add(path, "a default is a text, a number, true or false")
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
        """*text* with its secrets; parameters do not build on each other."""

        def put(found: re.Match[str]) -> str:
            if found[1] is None:
                return "${"
            if found[1].strip().startswith("env:"):
                return self._secret(found[1].strip().removeprefix("env:"), path)
            self._problems.add(path, "a default cannot have parameters in it")
            return ""

        return _PLACEHOLDER.sub(put, text)

    def _parse(self, text: str, default: Any, path: Path) -> Any:
        """What --set means, which is of the same kind as the default."""
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


def parse_set(texts: Iterable[str]) -> dict[str, str]:
    """
    Names and values from ``name=value``.

    Raises:
        ValueError: There is no ``=``, or no name before it.
    """
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"--set {text!r} is not NAME=VALUE")
        given[name.strip()] = value
    return given


def _in_url(text: str) -> str:
    """*text* as it stands in a URL."""
    return "".join(
        chr(byte) if chr(byte) in _PLAIN_IN_URLS else f"%{byte:02X}"
        for byte in text.encode()
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
