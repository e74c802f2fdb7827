"""
The help of commands, for terminals of 80 columns.

An option has a line of its own, with its description below: beside the longest option
there would be no room for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from typer.core import TyperCommand, TyperGroup

from pydanube_cli.presentation.plain_values import convert_plainly
from pydanube_cli.presentation.text_columns import GAP, lay_out, wrap

WIDTH_MAX = 100
"""Longer lines are hard to read."""

INDENT = "  "
DESCRIPTION_INDENT = "      "


class HelpfulCommand(TyperCommand):
    """A command with a help page of ours."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        parameters = super().get_params(ctx)
        convert_plainly(parameters)
        return parameters

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        return help_page(self, ctx.command_path, self.get_params(ctx), _width())


class HelpfulGroup(TyperGroup):
    """A command with subcommands, with a help page of ours."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        parameters = super().get_params(ctx)
        convert_plainly(parameters)
        return parameters

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        return help_page(self, ctx.command_path, self.get_params(ctx), _width())


def help_page(command: Any, path: str, parameters: Iterable[Any], width: int) -> str:
    """Return the help page of *command*, whose full name is *path*."""
    shown = [each for each in parameters if not each.hidden]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    contained = list(getattr(command, "commands", {}).values())
    words = [path, "[OPTIONS]", *map(metavar_of, arguments)]
    if contained:
        words.append("COMMAND [ARGS]...")
    lines = [f"Usage: {' '.join(words)}"]
    for paragraph in (command.help or "").split("\n\n"):
        lines += ["", *wrap(" ".join(paragraph.split()), width)]
    lines += _commands(contained, width)
    for title, group in (("Arguments", arguments), ("Options", options)):
        if group:
            lines += ["", f"{title}:"]
            lines += [line for each in group for line in _parameter(each, width)]
    lines += _examples(command.epilog or "", width)
    return "\n".join(lines)


def metavar_of(parameter: Any) -> str:
    """Return the name of a parameter's value."""
    return parameter.metavar or str(parameter.name).upper()


def names_of(parameter: Any) -> list[str]:
    """Return the names of an option, the short ones first."""
    return [*sorted(parameter.opts, key=len), *parameter.secondary_opts]


def default_of(parameter: Any) -> str | None:
    """Return the default of a parameter for people; None if there is none to show."""
    default = parameter.default
    if isinstance(default, Enum):
        default = default.value
    if parameter.required or default is None or default == "" or default is False:
        return None
    if default is True:
        return str(parameter.opts[0])
    return f"{default:g}" if isinstance(default, float) else str(default)


def _parameter(parameter: Any, width: int) -> Iterator[str]:
    """Yield the lines of an argument or option."""
    if parameter.param_type_name == "argument":
        form = metavar_of(parameter)
    else:
        form = ", ".join(names_of(parameter))
        if not parameter.is_flag:
            form += f" {metavar_of(parameter)}"
    yield INDENT + form
    facts = ["required"] if parameter.required else []
    if parameter.envvar:
        facts.append(f"variable: {parameter.envvar}")
    if (default := default_of(parameter)) is not None:
        facts.append(f"default: {default}")
    text = (parameter.help or "") + (f" [{'; '.join(facts)}]" if facts else "")
    for line in wrap(text, width - len(DESCRIPTION_INDENT)):
        yield DESCRIPTION_INDENT + line


def _commands(contained: list[Any], width: int) -> Iterator[str]:
    """Yield the lines of the list of subcommands, by panel."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in contained:
        panel = getattr(each, "rich_help_panel", None) or "Commands"
        text, _, _ = (each.help or "").partition("\n\n")
        panels.setdefault(panel, []).append((each.name, " ".join(text.split())))
    # The names of all panels are equally wide.
    indent = len(INDENT + GAP) + max((len(each.name) for each in contained), default=0)
    for title, rows in panels.items():
        yield ""
        yield f"{title}:"
        padded = [(name.ljust(indent - len(INDENT + GAP)), text) for name, text in rows]
        for group in lay_out(padded, width - len(INDENT), (False, False)):
            for line in group:
                yield INDENT + line


def _examples(epilog: str, width: int) -> Iterator[str]:
    """Yield the lines of the examples; long ones are continued as a shell allows."""
    title, *examples = epilog.split("\n")
    if not title:
        return
    yield ""
    yield title
    for example in examples:
        first, *more = wrap(example, width - len(DESCRIPTION_INDENT) - 2)
        lines = [INDENT + first, *(DESCRIPTION_INDENT + each for each in more)]
        yield " \\\n".join(lines)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDTH_MAX)
