"""
Declaration and parsing of the options that users set with ``option(…)``.

Each source and sink declares its options as a tuple of ``Option``.  Parsing refuses all
other names.  Tests compare the tables in the guides with the tuples.  Names are in any
case, because Spark passes them in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydanube.model.errors import BrokerError, InvalidConfig
from pydanube.model.quantities import DURATION_UNITS, SPARK_BYTE_UNITS, parse_quantity
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.reader.pure.bounds import parse_number

D = TypeVar("D", int, int | None)


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option; ``header.*`` is all names that begin so."""

    name: str
    default: str
    meaning: str
    modes: str = "batch, stream"
    is_required: bool = False
    alias: str | None = None
    """Another name, in lower case."""
    instead_of: tuple[str, ...] = ()
    """Names that other systems have for it, in lower case; errors refer to them."""

    def has_name(self, key: str) -> bool:
        """Return whether *key*, in lower case, names the option or is in its family."""
        name = self.name.lower()
        if name.endswith("*"):
            return key.startswith(name[:-1]) and key != name[:-1]
        return key in (name, self.alias)


def unknown_options(
    given: Iterable[str],
    declared: Sequence[Option],
    *,
    ignored: frozenset[str] = frozenset(),
) -> dict[str, str]:
    """Return the problems of those names in *given* that are not *declared*."""
    return {
        name: _unknown(name, declared)
        for name in given
        if name.lower() not in ignored
        and not any(each.has_name(name.lower()) for each in declared)
    }


def _unknown(name: str, declared: Sequence[Option]) -> str:
    found = f"unknown option {name!r}"
    for option in declared:
        if name.lower() in option.instead_of:
            return f"{found}; use {option.name!r}"
    return found + did_you_mean(name, [each.name for each in declared])


def parse_options(
    given: Mapping[str, str],
    declared: Sequence[Option],
    *,
    mode: str | None = None,
    ignored: frozenset[str] = frozenset(),
) -> ParsedOptions:
    """
    Return the options *given*, whose names must be *declared*.

    Args:
        given: Option texts by name, in any case.
        declared: All options that exist.
        mode: ``batch`` or ``stream``; options of the other mode are then refused.
        ignored: Names that are dropped, in lower case.

    Raises:
        InvalidConfig: A name is unknown, not for *mode* or given twice, or a required
            one is missing.
    """
    values: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        if key in ignored:
            continue
        option = next((each for each in declared if each.has_name(key)), None)
        if option is None:
            raise InvalidConfig(_unknown(name, declared))
        if mode is not None and mode not in option.modes:
            raise InvalidConfig(f"{option.name}: not for a {mode} read")
        if key == option.alias:
            key = option.name.lower()
        # The value may be a secret, so it is not shown.
        if values.setdefault(key, str(value).strip()) != str(value).strip():
            raise InvalidConfig(f"{name}: given twice with different values")
    for option in declared:
        if option.is_required and not values.get(option.name.lower()):
            raise InvalidConfig(f"the option {option.name!r} is required")
    return ParsedOptions(values)


def option_problems(
    parse: Callable[[Mapping[str, str]], object], options: Mapping[str, str]
) -> list[str]:
    """
    Return the problem of each of *options* that *parse* refuses.

    Errors begin with the name of an option; *parse* is called again without it.  An
    error without a name is reported only if there is no other: it may be about what is
    left out.
    """
    left, found = dict(options), list[str]()
    while True:
        try:
            parse(left)
        except BrokerError as error:
            text = str(error)
        else:
            return found
        wrong = text.partition(":")[0].lower()
        name = next((each for each in left if each.lower() == wrong), None)
        if name is not None or not found:
            found.append(text)
        if name is None:
            return found
        del left[name]


class ParsedOptions:
    """
    The texts of options, and methods that parse them.

    The methods raise InvalidConfig, which names the option, if a text is malformed.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str = "") -> str:
        """Return the text of an option, or *default*."""
        return self._values.get(name.lower(), default)

    def items(self, name: str) -> list[str]:
        """Return the items of a list separated by commas, in order."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names in a list separated by commas, in order and each once."""
        found = tuple(self.items(name))
        if len(set(found)) < len(found):
            raise InvalidConfig(f"{name}: the list has a name twice")
        return found

    def count(self, name: str, default: D, *, smallest: int = 1) -> D:
        """Return a number from *smallest* up."""
        if name not in self:
            return default
        number = parse_number(self.text(name))
        if number is None or number < smallest:
            raise self._malformed(name, f"a number from {smallest} up")
        return number

    def byte_count(self, name: str, default: D) -> D:
        """Return a number of bytes from 1 up, which may be written as ``64m``."""
        if name not in self:
            return default
        number = parse_quantity(self.text(name), SPARK_BYTE_UNITS)
        if not number or number % 1 or number > 2**62:
            what = "a number of bytes such as 1048576, 512k, 64m or 2g"
            raise self._malformed(name, what)
        return int(number)

    def duration_s(self, name: str, default: float) -> float:
        """Return a duration such as ``500ms`` or ``15m``, in seconds."""
        if name not in self:
            return default
        number = parse_quantity(self.text(name), DURATION_UNITS)
        if number is None:
            raise self._malformed(name, "a time such as 500ms, 30s, 15m or 2h")
        return number

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds above zero, such as ``2.5``."""
        try:
            found = float(self.text(name, str(default)))
        except ValueError:
            found = 0.0
        if not 0 < found < float("inf"):
            raise self._malformed(name, "a number of seconds above zero")
        return found

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """Return whether the text is ``true``; else it must be ``false``."""
        return self.choice(name, ("true", "false"), str(default)) == "true"

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return the one of *choices* that the text is, in any case."""
        text = self.text(name, default)
        for each in choices:
            if text.lower() == each.lower():
                return each
        raise InvalidConfig(
            f"{name}: must be {' or '.join(choices)}, not {text!r}"
            + did_you_mean(text, choices)
        )

    def family(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin with *prefix*, by the rest of it."""
        start = prefix.lower()
        return {
            key[len(start) :]: value
            for key, value in sorted(self._values.items())
            if key.startswith(start)
        }

    def _malformed(self, name: str, what: str) -> InvalidConfig:
        text = self.text(name)
        return InvalidConfig(f"{name}: must be {what}, not {text!r}")
