"""One subject: its versions and their differences."""

from __future__ import annotations

from nicegui import ui

from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_time
from pydanube.model.schemas import Compatibility, SchemaVersion
from pydanube.security.permissions import Permission
from pydanube_console.frame import frame
from pydanube_console.pure.markup import Html, code, element, facts, panel
from pydanube_console.pure.schema_diff import diff, pretty
from pydanube_console.sessions import Session

NONE = "nothing"


async def show(session: Session, subject: str = "") -> None:
    """Show the subject."""
    with frame(session, subject, current="/schemas") as page:
        schemas = page.client.schemas
        versions: list[SchemaVersion] = []

        async def load() -> None:
            versions.extend(await schemas.versions(subject))

        if not await page.attempt(load) or not versions:
            return
        modes = [each.value for each in Compatibility]
        mode = await schemas.compatibility(subject)
        numbers = [each.version for each in versions]
        with ui.row().classes("tools"):
            version = ui.select(numbers, value=numbers[-1], label="Version")
            other = ui.select(
                [NONE, *numbers],
                value=numbers[-2] if len(numbers) > 1 else NONE,
                label="Compare with",
            )
            chosen = ui.select(modes, value=mode.value, label="Compatibility")
            for each in (version, other, chosen):
                each.props("dense outlined").style("min-width: 9rem")
        await page.allow(chosen, Permission.MANAGE, f"subject:{subject}")
        content = page.show()

        def draw() -> None:
            known = {each.version: each for each in versions}
            content.set_content(render(known[version.value], known.get(other.value)))

        async def change() -> None:
            await schemas.set_compatibility(subject, chosen.value)

        version.on_value_change(draw)
        other.on_value_change(draw)
        chosen.on_value_change(lambda: page.attempt(change, "Compatibility is changed"))
        draw()


def render(version: SchemaVersion, before: SchemaVersion | None) -> Html:
    """Return a version, and its differences from *before*, if given."""
    about = facts(
        [
            ("Type", version.type.value),
            ("Registered", format_time(to_datetime(version.created_at))),
            ("By", version.created_by or "unknown"),
            ("Description", version.description or "none"),
            ("Fingerprint", version.fingerprint),
        ]
    )
    if before is None or before is version:
        body, title = code(pretty(version.definition)), "Definition"
    else:
        body = diff(before.definition, version.definition)
        title = f"Changes since version {before.version}"
    return element(
        "div", panel(f"Version {version.version}", about), panel(title, body)
    )
