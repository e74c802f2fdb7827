"""
Contexts: named addresses of brokers, in a file of the user.

The file is TOML, ``danube/contexts.toml`` in the user's configuration directory::

    current = "prod"

    [contexts.prod]
    url = "danube://broker.example:6651"
    output_format = "json"

A command takes the address of the broker from ``--url``, else from the variable
DANUBE_URL, else from the context that ``--context``, the variable DANUBE_CONTEXT or
``current`` names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from pathlib import Path

from pydanube.model.errors import InvalidConfig, InvalidRequest, NotFound
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.suggestions import did_you_mean

CONTEXT_VARIABLE = "DANUBE_CONTEXT"
"""The environment variable with the name of a context."""

URL_VARIABLE = "DANUBE_URL"
"""The environment variable with the address of a broker; it overrides contexts."""

FILE_BYTES_MAX = 1024 * 1024
"""A larger file is refused before it fills the memory."""

OUTPUT_FORMATS = ("table", "json")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_HEADER = '# Written by "danube config", which does not keep comments.\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The address of a broker, and defaults of options."""

    url: str
    output_format: str | None = None
    """The default of ``--format``."""


SETTINGS = tuple(each.name for each in fields(Context))


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a user, by name; *current* applies by default."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def find(self, name: str) -> Context:
        """
        Return the context *name*.

        Raises:
            NotFound: There is none.
        """
        if name not in self.by_name:
            raise NotFound(
                f"there is no context {name!r}; 'danube config list' lists the "
                "contexts, 'danube config set' adds one"
                f"{did_you_mean(name, self.by_name)}"
            )
        return self.by_name[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        """
        Return these contexts with *context* added, or instead of the one of its name.

        Raises:
            InvalidRequest: *name* is not a valid name, or the URL is not printable.
        """
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is not a name for a context; it has up to 63 letters, "
                "digits, '.', '_' and '-', and begins with a letter or digit"
            )
        if not context.url.isprintable():
            raise InvalidRequest(
                f"the URL of the context {name!r} has characters that cannot be "
                "printed; write it as danube://HOST:PORT"
            )
        return replace(self, by_name={**self.by_name, name: context})

    def without(self, name: str) -> Contexts:
        """
        Return these contexts without *name*, which is no longer the current one.

        Raises:
            NotFound: There is no such context.
        """
        self.find(name)
        rest = {each: found for each, found in self.by_name.items() if each != name}
        return Contexts(rest, None if name == self.current else self.current)

    def using(self, name: str) -> Contexts:
        """
        Return these contexts with *name* as the current one.

        Raises:
            NotFound: There is no such context.
        """
        self.find(name)
        return replace(self, current=name)


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file with the contexts."""
    given = environment.get("XDG_CONFIG_HOME", "")
    # The specification says that relative paths are ignored.
    root = Path(given) if given.startswith("/") else Path.home() / ".config"
    return root / "danube" / "contexts.toml"


def parse_contexts(text: str) -> Contexts:
    """
    Return the contexts that the text of a file has.

    Raises:
        InvalidConfig: The text is not such a file.
    """
    import tomllib  # noqa: PLC0415  # Only users with contexts need it.

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"it is not valid TOML: {error}") from None
    _check_names("", document, ("current", "contexts"))
    tables = document.get("contexts", {})
    if not isinstance(tables, dict):
        raise InvalidConfig("contexts is not a table")
    contexts = Contexts()
    for name, table in tables.items():
        try:
            contexts = contexts.with_context(name, _context_of(name, table))
        except InvalidRequest as error:
            raise InvalidConfig(str(error)) from None
    current = document.get("current")
    # A value of another type need not be hashable.
    if current is not None and current not in list(contexts.by_name):
        raise InvalidConfig(f"current is {current!r}, which is not one of the contexts")
    return replace(contexts, current=current)


def format_contexts(contexts: Contexts) -> str:
    """Return the text of a file with *contexts*."""
    lines = [_HEADER]
    if contexts.current is not None:
        lines.append(f"\ncurrent = {_quoted(contexts.current)}\n")
    for name, context in contexts.by_name.items():
        lines.append(f"\n[contexts.{_quoted(name)}]\n")
        lines += [
            f"{setting} = {_quoted(value)}\n"
            for setting in SETTINGS
            if (value := getattr(context, setting)) is not None
        ]
    return "".join(lines)


def load_contexts(path: Path) -> Contexts:
    """
    Return the contexts in the file at *path*; none if there is no file.

    Raises:
        InvalidConfig: The file cannot be read, or is invalid.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise InvalidConfig(
            f"the file of the contexts, {path}, cannot be read "
            f"({error.strerror or error}); make it readable, or remove it"
        ) from None
    try:
        return parse_contexts(_decode(data))
    except InvalidConfig as error:
        raise InvalidConfig(
            f"the file of the contexts, {path}, is invalid: {error}; correct it, or "
            "remove it and create the contexts again with 'danube config set'"
        ) from None


def save_contexts(path: Path, contexts: Contexts) -> None:
    """
    Replace the file at *path*, which only its owner can read.

    Durability: After a crash the file is the old one or the new one as a whole.
    """
    import tempfile  # noqa: PLC0415  # Few commands write.

    # The file may be a symbolic link, which stays one.
    target = path.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The temporary file has the mode 0600.
    descriptor, new = tempfile.mkstemp(dir=target.parent, prefix=".contexts-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(format_contexts(contexts))
            file.flush()
            os.fsync(file.fileno())
        Path(new).replace(target)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise


def _decode(data: bytes) -> str:
    """
    Return the text of a file with the content *data*.

    Raises:
        InvalidConfig: It is too large, or not UTF-8.
    """
    if len(data) > FILE_BYTES_MAX:
        raise InvalidConfig(f"it is larger than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidConfig("it is not UTF-8") from None


def _context_of(name: str, table: object) -> Context:
    """
    Return the context *name*, which a file describes by *table*.

    Raises:
        InvalidConfig: A setting is missing, unknown or invalid.
    """
    where = f"contexts.{name}"
    if not isinstance(table, dict):
        raise InvalidConfig(f"{where} is not a table")
    _check_names(f"{where}.", table, SETTINGS)
    for setting, value in table.items():
        if not isinstance(value, str):
            raise InvalidConfig(f"{where}.{setting} is not a string")
    if "url" not in table:
        raise InvalidConfig(f"{where}.url is missing")
    output_format = table.get("output_format")
    if output_format not in {None, *OUTPUT_FORMATS}:
        raise InvalidConfig(
            f"{where}.output_format is {output_format!r}; it can be "
            f"{' or '.join(OUTPUT_FORMATS)}"
        )
    return Context(**table)


def _check_names(
    where: str, table: Mapping[str, object], known: tuple[str, ...]
) -> None:
    """
    Raise if *table* has a name that is not *known*.

    Raises:
        InvalidConfig: It has.
    """
    for name in table:
        if name not in known:
            hint = did_you_mean(name, known).removeprefix("; ")
            raise InvalidConfig(
                f"the setting {where}{name} is unknown" + (f" ({hint})" if hint else "")
            )


def _quoted(text: str) -> str:
    """Return *text* as a string of TOML."""
    escaped = (
        char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}"
        for char in text
    )
    return f'"{"".join(escaped)}"'
