"""
What a user can say to a sink with ``option(...)``, parsed once on entry.

Each sink declares its options in a tuple of ``SinkOption``: parsing refuses any
other name, and the tables in ``docs/guide/sinks.md`` are made from it.  Spark gives
names in lower case, and a pipeline as they were written; both are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidConfig
from pydanube.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})
"""What Spark hands to every sink of a stream although it is not for the sink."""


@dataclass(frozen=True, slots=True)
class SinkOption:
    """One name that ``option(...)`` takes; ``header.*`` is all that begin so."""

    name: str
    default: str
    meaning: str
    is_required: bool = False

    @property
    def prefix(self) -> str | None:
        """What the names of a family begin with, in lower case."""
        return self.name[:-1].lower() if self.name.endswith("*") else None


APP_ID = SinkOption(
    "appId",
    "the query's id",
    "Whose batches these are. A batch of a number that was written before under this "
    "name is not written again, so a query with a new checkpoint needs a new one.",
)
BATCH_ID = SinkOption(
    "batchId",
    "",
    "The number of the batch, where a batch is written in `foreachBatch`; together "
    "with `appId`. A stream has its own.",
)
RETRIES = SinkOption(
    "retries", "5", "How often what failed for a passing reason is tried again."
)
RETRY_INTERVAL = SinkOption(
    "retryIntervalMs",
    "500",
    "How long to wait before the first repetition; each further one waits twice as "
    "long, up to 30 s.",
)


def parse_given(
    given: Mapping[str, str], declared: Sequence[SinkOption]
) -> ParsedOptions:
    """
    What is given, with every name one that is *declared*.

    Raises:
        InvalidConfig: A name is unknown or given twice, or a required one is missing.
    """
    by_key = {option.name.lower(): option for option in declared}
    prefixes = [option.prefix for option in declared if option.prefix]
    values: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        if key in SPARK_OPTIONS:
            continue
        if key not in by_key and not any(
            key.startswith(prefix) and key != prefix for prefix in prefixes
        ):
            names = [option.name for option in declared]
            raise InvalidConfig(f"unknown option {name!r}{did_you_mean(name, names)}")
        # The value may be a secret, so it is not shown.
        if values.setdefault(key, str(value).strip()) != str(value).strip():
            raise InvalidConfig(f"{name}: given twice with different values")
    for option in declared:
        if option.is_required and not values.get(option.name.lower()):
            raise InvalidConfig(f"the option {option.name!r} is required")
    return ParsedOptions(values)


def options_table(declared: Sequence[SinkOption]) -> str:
    """The options as a Markdown table, for the guide."""
    rows = [
        f"| `{option.name}` | "
        f"{'required' if option.is_required else option.default or 'none'} | "
        f"{option.meaning} |"
        for option in declared
    ]
    return "\n".join(["| Option | Default | Meaning |", "|---|---|---|", *rows])


class ParsedOptions:
    """Options by name, in any case, each read as what it is meant to be."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default)

    def names(self, name: str) -> tuple[str, ...]:
        """
        Names separated by commas, in the order given.

        Raises:
            InvalidConfig: One stands there twice.
        """
        found = tuple(
            part.strip() for part in self.text(name).split(",") if part.strip()
        )
        if len(set(found)) < len(found):
            raise InvalidConfig(f"{name}: a name stands there twice")
        return found

    def count(self, name: str, default: int, *, smallest: int = 1) -> int:
        """
        A number from *smallest* up.

        Raises:
            InvalidConfig: It is no such number.
        """
        text = self._values.get(name.lower())
        if text is None:
            return default
        if not text.isdecimal() or int(text) < smallest:
            raise InvalidConfig(
                f"{name}: must be a number from {smallest} up, not {text!r}"
            )
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        """
        A time, such as ``2.5``.

        Raises:
            InvalidConfig: It is not a number above zero.
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
        ``true`` or ``false``.

        Raises:
            InvalidConfig: It is neither.
        """
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise InvalidConfig(f"{name}: must be true or false, not {text!r}")
        return text == "true"

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """
        One of *choices*, in any case.

        Raises:
            InvalidConfig: It is none of them.
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
        """All whose names begin with *prefix*, by the rest of the name."""
        start = prefix.lower()
        return {key[len(start) :]: value for key, value in self._items(start)}

    def _items(self, start: str) -> Iterator[tuple[str, str]]:
        return (
            (key, value)
            for key, value in sorted(self._values.items())
            if key.startswith(start)
        )
