"""The parts that all pages have: the head, the menu, and dialogs for errors."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.disableable_element import DisableableElement
from nicegui.elements.mixins.value_element import ValueElement

from pydanube.model.errors import BrokerError
from pydanube.model.quantity_formats import format_age
from pydanube.security.permissions import Permission
from pydanube_console.monitor import Monitor
from pydanube_console.pure.charts import short_number
from pydanube_console.pure.markup import Html, badge, element, join
from pydanube_console.search import PAGES, find
from pydanube_console.sessions import Session

REFRESH_S = 2.0
OLD_S = 30.0
"""Older figures are marked."""
THEME_COOKIE = "danube-theme"
THEMES: dict[str, bool | None] = {"auto": None, "dark": True, "light": False}
"""Whether each theme is dark; None: as the system is."""
_PRESSED = """(event) => {
  const button = event.target.closest("button[data-action]");
  if (button && !button.disabled) emit(button.dataset.action, button.dataset.value);
}"""
_TOGGLED = """(event) => {
  const button = event.target.closest("button.toggle");
  if (!button) return;
  const below = button.closest("tr").nextElementSibling;
  below.hidden = !below.hidden;
  button.setAttribute("aria-expanded", String(!below.hidden));
}"""
_HEAD = '<link rel="stylesheet" href="/console.css">'


class Page:
    """One page in one browser tab."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.client = session.client

    def show(self, markup: Html | None = None) -> ui.html:
        """Add a block with *markup*, which can be replaced later."""
        shown = ui.html(markup or "", sanitize=False).classes("block")
        return shown.on("click", js_handler=_TOGGLED)

    async def allow(
        self, button: DisableableElement, permission: Permission, resource: str
    ) -> bool:
        """
        Enable *button* if the user has *permission*, and say why if not.

        Returns: Whether the user has it.
        """
        # The page may be shown while the broker is asked.
        button.disable()
        is_allowed = await self.session.access.may(permission, resource)
        needed = f"You need the permission {permission.value} on {resource}."
        self.enable(button, "" if is_allowed else needed)
        return is_allowed

    def enable(self, button: DisableableElement, refusal: str = "") -> None:
        """Enable *button*, or disable it and show the *refusal*, if there is one."""
        button.set_enabled(not refusal)
        if refusal:
            button.props["title"] = refusal
        else:
            button.props.pop("title", None)

    def allow_named(
        self,
        name: ValueElement[Any],
        resource_of: Callable[[str], str],
        buttons: Mapping[DisableableElement, Permission],
    ) -> None:
        """
        Enable each of *buttons* while the user may do it with what *name* contains.

        *resource_of* returns the resource of a name.
        """
        for each in buttons:
            each.disable()

        async def decide() -> None:
            text = str(name.value or "").strip()
            for each, permission in buttons.items():
                if text:
                    await self.allow(each, permission, resource_of(text))
                else:
                    each.disable()

        name.on_value_change(lambda: self.attempt(decide))

    def on_press(
        self, shown: ui.html, work: Callable[[str, str], Awaitable[None]]
    ) -> None:
        """Call *work* with the action and the value of each button that is pressed."""

        async def press(event: Any) -> None:
            match event.args:
                case [str(action), str(value)]:
                    await work(action, value)

        shown.on("click", press, js_handler=_PRESSED)

    def refresh(self, update: Callable[[], Awaitable[None] | None]) -> None:
        """
        Call *update* now and regularly, while the page is open.

        The same error, again and again, is shown once.
        """
        shown = ""

        async def work() -> None:
            nonlocal shown
            self.session.monitor.watch()
            try:
                await _result_of(update)
            except (BrokerError, ValueError) as error:
                if str(error) != shown:
                    _show_error(error)
                shown = str(error)
            else:
                shown = ""

        ui.timer(REFRESH_S, work, immediate=True)

    def keep_session(self) -> None:
        """Keep the session open as long as the page is; load the page if it ended."""
        if self.session.is_open:
            self.session.used_at = time.monotonic()
            if not self.session.monitor.has_taken:
                # The menu shows counts.
                self.session.monitor.watch()
        else:
            ui.navigate.reload()

    def tabs(
        self, names: Sequence[str], chosen: str
    ) -> tuple[ui.tabs, dict[str, ui.tab_panel]]:
        """Add tabs, of which *chosen* is shown first; return them and their panels."""
        with ui.tabs().props("align=left no-caps") as tabs:
            for name in names:
                ui.tab(name, name.capitalize())
        first = chosen if chosen in names else names[0]
        with ui.tab_panels(tabs, value=first).classes("block panels"):
            panels = {name: ui.tab_panel(name).classes("q-pa-none") for name in names}
        return tabs, panels

    async def attempt(
        self, work: Callable[[], Awaitable[Any] | Any], done: str = ""
    ) -> bool:
        """
        Do *work*; show *done* if it succeeds, and its error if the broker refuses it.

        Returns: Whether it succeeded.
        """
        try:
            await _result_of(work)
        except (BrokerError, ValueError) as error:
            _show_error(error)
            return False
        if done:
            ui.notify(done, type="positive")
        return True

    async def confirm(self, question: str, action: str, *, typed: str = "") -> bool:
        """Return whether the user agrees; with *typed*, by typing this text."""
        with ui.dialog() as dialog, ui.card().classes("form"):
            ui.label(question)
            entered = ui.input(f"Type {typed} to confirm") if typed else None
            with ui.row():
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
                button = ui.button(action, on_click=lambda: dialog.submit(True))
                button.props("color=negative" if typed else "color=primary")
                if entered is not None:
                    button.bind_enabled_from(
                        entered, "value", backward=lambda value: value == typed
                    )
        agreed = await dialog
        dialog.delete()
        return bool(agreed)


async def _result_of(work: Callable[[], Awaitable[Any] | Any]) -> None:
    result = work()
    if isinstance(result, Awaitable):
        await result


def _show_error(error: Exception) -> None:
    ui.notify(str(error), type="negative", multi_line=True, timeout=10_000)


@contextmanager
def frame(
    session: Session, title: str, *, current: str, has_figures: bool = False
) -> Iterator[Page]:
    """
    Show the head and the menu around the body; *current* is the page's address.

    *has_figures*: Whether it shows figures of the last sample, whose age is shown.
    """
    ui.page_title(f"{title} · Danube")
    ui.add_head_html(_HEAD)
    stored = ui.context.client.request.cookies.get(THEME_COOKIE, "")
    dark = ui.dark_mode(THEMES.get(stored))
    page = Page(session)
    ui.timer(REFRESH_S, page.keep_session)
    with ui.header().classes("top-bar items-center"):
        with (
            ui.button(icon="menu").props("flat dense aria-label=Menu") as menu,
            ui.menu(),
        ):
            menus = [ui.html("", sanitize=False).classes("side")]
        menu.classes("narrow")
        ui.html('<a class="brand" href="/">Danube<span>.</span></a>', sanitize=False)
        ui.space()
        search = _search_dialog(page)
        ui.button(icon="search", on_click=search).props("flat dense aria-label=Search")
        theme = ui.button(icon="contrast").props('flat dense aria-label="Change theme"')
        theme.on_click(lambda: _next_theme(dark))
        if session.user:
            with (
                ui.button(icon="person").props("flat dense aria-label=Account"),
                ui.menu(),
            ):
                ui.item(session.user)
                ui.item("Sign out", on_click=_sign_out)
    ui.keyboard(on_key=lambda event: _on_key(event, search), ignore=_IGNORED)
    with ui.element("div").classes("body"):
        aside = ui.html("", sanitize=False, tag="aside").classes("side wide-only")
        menus.append(aside)
        main = ui.element("main").classes("page")

    def show_state() -> None:
        content = _menu(current, {"/dead-letters": _dead_letters_in(session)})
        for each in menus:
            each.set_content(content)
        age.set_content(_age_of(session.monitor) if has_figures else "")

    with main:
        with ui.element("div").classes("page-head"):
            ui.html(element("h1", title), sanitize=False)
            age = ui.html("", sanitize=False)
        show_state()
        ui.timer(REFRESH_S, show_state)
        yield page


_IGNORED: list[Any] = ["input", "select", "textarea"]


def _age_of(monitor: Monitor) -> Html:
    """Return how old the figures are, and why there are no new ones."""
    sample = monitor.history.sample
    if sample is None:
        return Html("")
    age_s = max(0.0, time.monotonic() - sample.taken_at)
    text = (
        "measured now" if age_s < 2 * REFRESH_S else f"measured {format_age(age_s)} ago"
    )
    if age_s < OLD_S:
        return element("span", text, class_="muted")
    return element("span", badge(text, "warn"), title=monitor.error)


def _dead_letters_in(session: Session) -> int:
    return sum(session.monitor.dead_letters.values())


def _menu(current: str, counts: Mapping[str, int]) -> Html:
    entries = [
        element(
            "a",
            text,
            # A screen reader reads the number after the name.
            join([" ", badge(short_number(number), "warn")])
            if (number := counts.get(path, 0))
            else "",
            href=path,
            **({"aria_current": "page"} if path == current else {}),
        )
        for text, path in PAGES
    ]
    return element("nav", *entries, aria_label="Pages")


def _search_dialog(page: Page) -> Callable[[], object]:
    """Return what opens the search."""
    with ui.dialog().props("position=top") as dialog, ui.card().classes("form"):
        entry = ui.input("Search topics, subscriptions, schemas, connectors …")
        entry.props("autofocus clearable debounce=150")
        results = ui.html("", sanitize=False).classes("results")

    async def search() -> None:
        page.session.monitor.watch()
        found = await find(page.session, entry.value or "")
        lines = [
            element(
                "a",
                each.text,
                " ",
                element("span", each.kind, class_="muted"),
                href=each.href,
            )
            for each in found
        ]
        nothing = element("p", "Nothing has this name.", class_="muted")
        results.set_content(join(lines) or (nothing if entry.value else ""))

    entry.on_value_change(lambda: page.attempt(search))

    async def open_first(text: str) -> None:
        found = await find(page.session, text)
        if text and found:
            ui.navigate.to(found[0].href)

    # What is shown may belong to fewer letters than were typed.
    entry.on(
        "keydown.enter",
        lambda event: page.attempt(partial(open_first, str(event.args or ""))),
        js_handler="(event) => emit(event.target.value)",
    )
    return dialog.open


def _on_key(event: Any, search: Callable[[], object]) -> None:
    if event.action.keydown and (
        event.key == "/" or (event.key == "k" and event.modifiers.ctrl)
    ):
        search()


def _next_theme(dark: ui.dark_mode) -> None:
    theme = {None: "dark", True: "light", False: "auto"}[dark.value]
    dark.value = THEMES[theme]
    ui.run_javascript(
        f'document.cookie = "{THEME_COOKIE}={theme}; path=/; samesite=strict; "'
        ' + "max-age=31536000"'
    )
    ui.notify(f"Theme: {theme}")


def _sign_out() -> None:
    ui.run_javascript(
        'fetch("/logout", {method: "POST"}).then(() => location.assign("/login"))'
    )
