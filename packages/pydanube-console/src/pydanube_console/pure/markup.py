"""
HTML that the console shows, made from text.

Pure.  Text becomes HTML only here, and everything that is not made here is escaped, so
names and messages that contain HTML are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from pydanube.model.shown_text import printable


class Html(str):
    """HTML that is safe to show."""

    __slots__ = ()


def text_of(value: object) -> Html:
    """Return *value* as text, in which control characters are visible."""
    if isinstance(value, Html):
        return value
    return Html(escape(printable(str(value))))


def join(parts: Iterable[object], separator: str = "") -> Html:
    """Return *parts* one after the other."""
    return Html(separator.join(text_of(each) for each in parts))


def element(name: str, *content: object, **attributes: str) -> Html:
    """
    Return an element.

    The attribute ``class`` is ``class_``, and ``aria-label`` is ``aria_label``.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(value))}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{join(content)}</{name}>")


def link(text: object, path: str, **parameters: object) -> Html:
    """Return a link to a page of the console."""
    return element("a", text, href=address(path, **parameters))


def address(path: str, **parameters: object) -> str:
    """Return the address of a page with *parameters*; empty ones are left out."""
    query = "&".join(
        f"{name}={quote(str(value), safe='/')}"
        for name, value in parameters.items()
        if value not in {None, ""}
    )
    return f"{path}?{query}" if query else path


def badge(text: object, kind: str = "plain") -> Html:
    """Return a short label: *kind* is plain, good, warn or bad."""
    return element("span", text, class_=f"badge badge-{kind}")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False
    is_wide_only: bool = False
    """Whether it is left out on narrow screens."""

    @property
    def style(self) -> str:
        """The classes of its cells."""
        names = ["num"] * self.is_number + ["wide-only"] * self.is_wide_only
        return " ".join(names)


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    empty: str = "None.",
) -> Html:
    """Return a table with a *caption* for screen readers, or *empty* without rows."""
    return _table(columns, [_row(columns, each) for each in rows], caption, empty)


def expandable_table(
    columns: Sequence[Column],
    rows: Iterable[tuple[Sequence[object], Html]],
    *,
    caption: str,
    empty: str,
    row: str,
) -> Html:
    """
    Return a table whose rows each have a button that shows what is below the row.

    ``Page.show`` listens to the buttons; *row* is what a row is called.
    """
    wide = [Column(""), *columns]
    shown = []
    for number, (cells, below) in enumerate(rows, 1):
        toggle = element(
            "button",
            type="button",
            class_="act toggle",
            aria_expanded="false",
            aria_label=f"Show {row} {number}",
        )
        whole = element("td", below, colspan=str(len(wide)))
        shown += [_row(wide, [toggle, *cells]), element("tr", whole, hidden="")]
    return _table(wide, shown, caption, empty)


def _row(columns: Sequence[Column], cells: Sequence[object]) -> Html:
    return element(
        "tr",
        *(
            element("td", cell, class_=column.style)
            for column, cell in zip(columns, cells, strict=True)
        ),
    )


def _table(
    columns: Sequence[Column], rows: Sequence[Html], caption: str, empty: str
) -> Html:
    if not rows:
        return element("p", empty, class_="muted")
    heads = [
        element("th", each.title, class_=each.style, scope="col") for each in columns
    ]
    whole = element(
        "table",
        element("caption", caption, class_="sr-only"),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
    )
    return element(
        "div",
        whole,
        class_="table-box",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def button(
    text: str,
    action: str,
    value: object,
    *,
    refusal: str = "",
    label: str = "",
    is_pressed: bool | None = None,
) -> Html:
    """
    Return a button that ``Page.on_press`` listens to.

    *refusal*: Why it can do nothing; empty: it can.  *label* names it for screen
    readers, if the text alone does not.  *is_pressed*: Whether it is switched on; None:
    it is no switch.
    """
    given = {"data_action": action, "data_value": str(value), "class_": "act"}
    if label:
        given["aria_label"] = label
    if is_pressed is not None:
        given["aria_pressed"] = str(is_pressed).lower()
    if refusal:
        given |= {"disabled": "", "title": refusal}
    return element("button", text, type="button", **given)


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Return names and values, one pair below the other."""
    return element(
        "dl",
        *(join((element("dt", name), element("dd", value))) for name, value in pairs),
        class_="facts",
    )


def stats(pairs: Iterable[tuple[str, object, object]]) -> Html:
    """Return large numbers, each with its name and a note."""
    return element(
        "div",
        *(
            element(
                "div",
                element("div", name, class_="stat-name"),
                element("div", value, class_="stat-value"),
                element("div", note, class_="stat-note"),
                class_="stat",
            )
            for name, value, note in pairs
        ),
        class_="stats",
    )


def panel(title: object, *content: object) -> Html:
    """Return a panel with a heading."""
    return element("section", element("h2", title), *content, class_="panel")


def code(text: str) -> Html:
    """Return text in which white space counts."""
    lines = "\n".join(printable(line) for line in text.split("\n"))
    return Html(f'<pre class="code">{escape(lines)}</pre>')
