"""The brokers of a cluster that serve the partitions of a topic, and moves of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui

from pydanube.client.client import Client
from pydanube.model.clusters import BrokerMode, ClusterDescription, ShardMove
from pydanube.model.errors import InvalidRequest, Unavailable
from pydanube_console.frame import Page


async def owners_of(client: Client, names: Sequence[str]) -> dict[str, str]:
    """
    Return the broker that serves each of the topics or partitions *names*.

    Without a cluster, it is empty.  A topic that no broker serves at the moment is left
    out.
    """
    if not (await client.requester.connection()).welcome.is_clustered:
        return {}
    found: dict[str, str] = {}
    for each in names:
        try:
            found[each] = (await client.requester.connection(each)).welcome.broker_id
        except Unavailable:
            continue
    return found


def move_text(topic: str, move: ShardMove) -> str:
    """Return what *move*, which was asked for because of *topic*, does."""
    if move.source == move.target:
        return f"{move.target} serves {topic} already, or will soon"
    others = max(0, move.topic_count - 1)
    more = f", with {others} other topics of its shard" if others else ""
    return f"{topic} moves from {move.source or '(no broker)'} to {move.target}{more}"


class MoveDialog:
    """A dialog that moves a topic, or one of its partitions, to another broker."""

    def __init__(
        self,
        page: Page,
        name: str,
        owners: Mapping[str, str],
        cluster: ClusterDescription,
    ) -> None:
        self._page = page
        brokers = [
            each.broker_id
            for each in cluster.brokers
            if each.url and each.mode is BrokerMode.ACTIVE
        ]
        options = {each: f"{each}, on {owner}" for each, owner in owners.items()}
        with ui.dialog() as self._dialog, ui.card().classes("form"):
            ui.label(f"Move {name} to another broker")
            first = next(iter(options), None)
            self._topic = ui.select(options, value=first, label="Topic or partition")
            self._broker = ui.select(brokers, label="To broker")
            ui.label(
                "All topics of its shard move with it. Producers and consumers go on "
                "at the new broker. Later the shard may be moved again, to balance the "
                "load."
            ).classes("muted")
            typed = ui.input(f"Type {name} to confirm")
            with ui.row():
                ui.button("Cancel", on_click=self._dialog.close).props("flat")
                move = ui.button("Move").props("color=negative")
                move.on_click(lambda: page.attempt(self._move))
                move.bind_enabled_from(
                    typed, "value", backward=lambda value: value == name
                )

    def open(self) -> None:
        """Show the dialog."""
        self._dialog.open()

    async def _move(self) -> None:
        topic, broker = self._topic.value, self._broker.value
        if not topic or not broker:
            raise InvalidRequest("choose what to move, and the broker")
        made = await self._page.client.cluster.move_topic(topic, broker)
        self._dialog.close()
        ui.notify(move_text(topic, made), type="positive")
