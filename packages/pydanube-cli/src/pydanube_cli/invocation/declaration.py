"""The declaration of commands: their options, connections and results."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from inspect import Parameter, Signature, cleandoc, signature
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

import typer

from pydanube.model.errors import InvalidRequest
from pydanube_cli.invocation.interruption import raising_on_sigterm
from pydanube_cli.invocation.parameters import FormatOption, Url, examples
from pydanube_cli.presentation.help_pages import HelpfulCommand
from pydanube_cli.presentation.output import OutputFormat, Result, print_result

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pydanube.sync import Client

Connect: TypeAlias = "Callable[..., AbstractContextManager[Client]]"
"""``pydanube.sync.connect`` with the broker that ``--url`` names."""

F = TypeVar("F", bound=Callable[..., Result | None])

_KEPT = ("min", "exists", "dir_okay", "autocompletion")
"""Options of Typer that stay as declared; help comes from docstrings."""

_ARGUMENTS = "\n\nArgs:\n"
"""The text between the help of a command and that of its arguments."""

_ARGUMENT = re.compile(
    r"^ {4}(?P<name>\w+)(?: \((?P<form>[^)]+)\))?: (?P<help>.+(?:\n {8}.+)*)",
    re.MULTILINE,
)


def command(
    app: typer.Typer,
    *lines: str,
    name: str | None = None,
    more: Sequence[Parameter] = (),
) -> Callable[[F], F]:
    """
    Add a function to *app* as a command, whose help has the examples *lines*.

    The section ``Args`` of its docstring has the help of its arguments, as in
    ``count (-n COUNT): The number of messages.``: other names and the metavariable are
    in parentheses.  If the function returns a result, the command prints it as the
    option ``--format`` says.  If the function has the parameter ``connect``, the
    command has the option ``--url``.  The function takes *more* options by ``**name``.
    """

    def add(function: F) -> F:
        text, _, _ = cleandoc(function.__doc__ or "").partition(_ARGUMENTS)
        run = _Callback(function, more)
        app.command(name, cls=HelpfulCommand, help=text, epilog=examples(*lines))(run)
        return function

    return add


class _Callback:
    """
    A command as Typer calls it, which gives it a connection and prints its result.

    Typer reads the parameters of the command that is run, so those of its siblings are
    not looked at.
    """

    def __init__(
        self, function: Callable[..., Result | None], more: Sequence[Parameter]
    ) -> None:
        self._function = function
        self._more = more
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        # Typer finds the types in the signature.
        self.__annotations__: dict[str, Any] = {}

    @cached_property
    def _declared(self) -> Signature:
        return signature(self._function, eval_str=True)

    @property
    def _uses_broker(self) -> bool:
        return "connect" in self._declared.parameters

    @property
    def _uses_format(self) -> bool:
        return "output_format" in self._declared.parameters

    @property
    def __signature__(self) -> Signature:
        """The parameters that become options and arguments."""
        _, _, listed = cleandoc(self._function.__doc__ or "").partition(_ARGUMENTS)
        documented = {each["name"]: each for each in _ARGUMENT.finditer(listed)}
        assert documented.keys() <= self._declared.parameters.keys()
        parameters = [
            _with_help(each, documented[each.name]) if each.name in documented else each
            for each in self._declared.parameters.values()
            if each.name not in {"connect", "output_format"}
            and each.kind is not Parameter.VAR_KEYWORD
        ]
        parameters += self._more
        if self._uses_broker:
            # Not all commands use the client.
            from pydanube.client.client import DEFAULT_URL  # noqa: PLC0415

            parameters.append(option("url", Url, DEFAULT_URL))
        if self._uses_format or self._declared.return_annotation is Result:
            default = OutputFormat.TABLE
            parameters.append(option("output_format", FormatOption, default))
        return self._declared.replace(parameters=parameters)

    def __call__(
        self, output_format: OutputFormat = OutputFormat.TABLE, **given: Any
    ) -> None:
        if self._uses_broker:
            from pydanube.sync import connect  # noqa: PLC0415

            url = given.pop("url")
            given["connect"] = partial(connect, url)
        if self._uses_format:
            given["output_format"] = output_format
        with raising_on_sigterm() if self._uses_broker else nullcontext():
            result = self._function(**given)
        if result is not None:
            print_result(result, output_format)


def option(name: str, annotation: Any, default: object) -> Parameter:
    """Return an option that Typer reads from *annotation*."""
    return Parameter(
        name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _with_help(parameter: Parameter, documented: re.Match[str]) -> Parameter:
    """Return *parameter* as Typer takes it, with the help that is *documented*."""
    kind: Any = parameter.annotation
    checks: dict[str, Any] = {}
    if get_origin(kind) is Annotated:
        kind, declared = get_args(kind)
        checks = {name: getattr(declared, name) for name in _KEPT}
    words = (documented["form"] or "").split()
    names = [word for word in words if word.startswith("-")]
    options: dict[str, Any] = {
        "metavar": next((word for word in words if word not in names), None),
        "help": " ".join(documented["help"].split()),
        "show_default": parameter.default not in {Parameter.empty, None, ""},
        **checks,
    }
    if parameter.kind is not Parameter.KEYWORD_ONLY:
        return parameter.replace(annotation=Annotated[kind, typer.Argument(**options)])
    if not any(name.startswith("--") for name in names):
        names.insert(0, f"--{parameter.name.replace('_', '-')}")
    return parameter.replace(
        annotation=Annotated[kind, typer.Option(*names, **options)]
    )


def confirm(question: str, *, is_sure: bool) -> None:
    """
    Return if the user confirms on the terminal, or has passed ``--yes``.

    Raises:
        InvalidRequest: Standard input is not a terminal.
        typer.Exit: The user declined.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(
            f"{question} Standard input is not a terminal; confirm with --yes"
        )
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
