"""
Declaration and parsing of the options that users set with ``option(…)``.

Each source and sink declares its options as a tuple of ``Option``.  Parsing refuses all
other names, and the tables in the guides are generated from the tuples.  Names are in
any case, because Spark passes them in lower case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydanube.model.errors import InvalidConfig
from pydanube.model.quantities import DURATION_UNITS, SPARK_BYTE_UNITS, parse_quantity
from pydanube.model.suggestions import did_you_mean
from pydanube.reader.bounds import parse_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

D = TypeVar("D", int, int | None)


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option; ``header.*`` is all names that begin so."""

    name: str
    default: str
    meaning: str
    modes: str = "batch, stream"
    is_required: bool = False

    @property
    def prefix(self) -> str | None:
        """The prefix of a family of names, in lower case."""
        return self.name[:-1].lower() if self.name.endswith("*") else None


def parse_options(
    given: Mapping[str, str],
    declared: Sequence[Option],
    *,
    mode: str | None = None,
    aliases: Mapping[str, str] | None = None,
    ignored: frozenset[str] = frozenset(),
) -> ParsedOptions:
    """
    Return the options *given*, whose names must be *declared*.

    Args:
        given: Option texts by name, in any case.
        declared: All options that exist.
        mode: ``batch`` or ``stream``; options of the other mode are then refused.
        aliases: Other names of options, in lower case.
        ignored: Names that are dropped, in lower case.

    Raises:
        InvalidConfig: A name is unknown, not for *mode* or given twice, or a required
            one is missing.
    """
    by_key = {option.name.lower(): option for option in declared}
    values: dict[str, str] = {}
    for name, value in given.items():
        key = (aliases or {}).get(name.lower(), name.lower())
        if key in ignored:
            continue
        option = by_key.get(key) or _family_of(key, declared)
        if option is None:
            names = [each.name for each in declared]
            raise InvalidConfig(f"unknown option {name!r}{did_you_mean(name, names)}")
        if mode is not None and mode not in option.modes:
            raise InvalidConfig(f"{option.name}: not for a {mode} read")
        # The value may be a secret, so it is not shown.
        if values.setdefault(key, str(value).strip()) != str(value).strip():
            raise InvalidConfig(f"{name}: given twice with different values")
    for option in declared:
        if option.is_required and not values.get(option.name.lower()):
            raise InvalidConfig(f"the option {option.name!r} is required")
    return ParsedOptions(values)


def _family_of(key: str, declared: Sequence[Option]) -> Option | None:
    for option in declared:
        prefix = option.prefix
        if prefix and key.startswith(prefix) and key != prefix:
            return option
    return None


def options_table(declared: Sequence[Option], *, has_modes: bool = False) -> str:
    """Return the Markdown table of *declared*, for the guides."""
    heads = ["Option", "Default", *["For"] * has_modes, "Meaning"]
    rows = [
        [
            f"`{option.name}`",
            "required" if option.is_required else option.default or "none",
            *[option.modes] * has_modes,
            option.meaning,
        ]
        for option in declared
    ]
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


class ParsedOptions:
    """The texts of options, and methods that parse them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str) -> str | None:
        """Return the text of an option, or None if it is not given."""
        return self._values.get(name.lower())

    def text(self, name: str, default: str = "") -> str:
        """Return the text of an option, or *default*."""
        return self._values.get(name.lower(), default)

    def items(self, name: str) -> list[str]:
        """Return the items of a list separated by commas, in order."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def names(self, name: str) -> tuple[str, ...]:
        """
        Return the names in a list separated by commas, in order.

        Raises:
            InvalidConfig: The list has a name twice.
        """
        found = tuple(self.items(name))
        if len(set(found)) < len(found):
            raise InvalidConfig(f"{name}: the list has a name twice")
        return found

    def count(self, name: str, default: D, *, smallest: int = 1) -> D:
        """
        Return a number from *smallest* up.

        Raises:
            InvalidConfig: The text is not such a number.
        """
        text = self.get(name)
        if text is None:
            return default
        number = parse_number(text)
        if number is None or number < smallest:
            raise InvalidConfig(
                f"{name}: must be a number from {smallest} up, not {text!r}"
            )
        return number

    def byte_count(self, name: str, default: D) -> D:
        """
        Return a number of bytes from 1 up, which may be written as ``64m``.

        Raises:
            InvalidConfig: The text is not such a number.
        """
        text = self.get(name)
        if text is None:
            return default
        number = parse_quantity(text, SPARK_BYTE_UNITS)
        if not number or number % 1 or number > 2**62:
            raise InvalidConfig(
                f"{name}: must be a number of bytes such as 1048576, 512k, 64m or 2g, "
                f"not {text!r}"
            )
        return int(number)

    def duration_s(self, name: str, default: float) -> float:
        """
        Return a duration such as ``500ms`` or ``15m``, in seconds.

        Raises:
            InvalidConfig: The text is not a duration.
        """
        text = self.get(name)
        if text is None:
            return default
        number = parse_quantity(text, DURATION_UNITS)
        if number is None:
            raise InvalidConfig(
                f"{name}: must be a time such as 500ms, 30s, 15m or 2h, not {text!r}"
            )
        return number

    def seconds(self, name: str, default: float) -> float:
        """
        Return a number of seconds above zero, such as ``2.5``.

        Raises:
            InvalidConfig: The text is not such a number.
        """
        text = self.text(name, str(default))
        try:
            found = float(text)
        except ValueError:
            found = 0.0
        if not 0 < found < float("inf"):
            raise InvalidConfig(
                f"{name}: must be a number of seconds above zero, not {text!r}"
            )
        return found

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """
        Return whether the text is ``true``; else it must be ``false``.

        Raises:
            InvalidConfig: The text is neither.
        """
        return self.choice(name, ("true", "false"), str(default)) == "true"

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """
        Return the one of *choices* that the text is, in any case.

        Raises:
            InvalidConfig: The text is none of them.
        """
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
