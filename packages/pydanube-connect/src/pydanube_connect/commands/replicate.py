"""`danube replicate`: mirrors topics to another broker or cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import InvalidRequest
from pydanube_cli.invocation import interruption, parameters
from pydanube_cli.invocation.declaration import command, confirm
from pydanube_cli.invocation.interruption import Interruption
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import (
    OutputFormat,
    Result,
    Table,
    print_json_line,
    print_line,
)
from pydanube_cli.presentation.quantities import optional, parse_bytes, parse_duration
from pydanube_connect.replication.pure.naming import TopicNaming
from pydanube_connect.replication.replicator import Replication, ReplicationStatus
from pydanube_connect.replication.running import cut_over as run_cut_over
from pydanube_connect.replication.running import find_lag, replicate
from pydanube_connect.replication.running import remove as run_remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube_connect.replication.checkpoints import MovedSubscription

STOP_S = 30.0
"""How long a replication may take to finish its commit."""

app = command_group(
    "Mirror topics to another broker or cluster, and let it take over.",
    "danube replicate run edge --from danube://edge --to danube://centre "
    "--topic '/default/*'",
    "danube replicate status edge --from danube://edge --to danube://centre",
    "danube replicate cut-over edge --from danube://edge --to danube://centre",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the replication, the same each time.",
        show_default=False,
    ),
]
Source = Annotated[
    str, typer.Option("--from", metavar="URL", help="The broker that has the topics.")
]
LostSource = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="The broker that has the topics; leave it out if it is lost.",
    ),
]
Target = Annotated[
    str, typer.Option("--to", metavar="URL", help="The broker to mirror them to.")
]
Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        metavar="PATTERN",
        help="A topic, or a pattern such as '/shop/*'; may be repeated.",
    ),
]
Renames = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="OLD=NEW",
        help="Replace the beginning OLD of names by NEW at the target, for example "
        "/shop/=/eu-shop/; may be repeated.",
    ),
]


@command(
    app,
    "danube replicate run edge --from danube://edge --to danube://centre "
    "--topic '/default/*'",
    "danube replicate run shop --from danube://eu --to danube://us --topic '/shop/*' "
    "--rename /shop/=/eu-shop/ --bandwidth 5MB --format json",
)
def run(
    name: Name,
    *,
    source: Source,
    target: Target,
    topic: Topics,
    rename: Renames = None,
    start: str = "earliest",
    bandwidth: str | None = None,
    skip_lost: bool = False,
    interval: str = "10s",
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Mirror topics continuously, from where the replication stopped the last time.

    Each message arrives once and in its order, with its key, attributes, times and
    schema, in the same partition. Topics that appear later are mirrored, too. While a
    broker is away, the command waits and tries again; the source keeps what is not
    mirrored. Ctrl-C and SIGTERM end it after the commit in hand; a second Ctrl-C ends
    it at once, which is safe. The exit code is 130 or 143 then, and 2 if it cannot
    continue.

    Args:
        start (earliest|latest): Where topics start that exist at the first run.
        bandwidth (BYTES): The most bytes of messages per second, such as 5MB.
        skip_lost: Continue after messages that the source has dropped before they were
            mirrored, and count them.
        interval (DURATION): How often the progress is printed.
    """
    if start not in {"earliest", "latest"}:
        raise InvalidRequest(f"--start is {start!r}; use earliest or latest")
    rate = optional(parse_bytes, bandwidth)
    if rate is not None and rate < 1:
        raise InvalidRequest(f"--bandwidth is {bandwidth}; it must be at least 1")
    interval_s = parse_duration(interval)
    if interval_s <= 0:
        raise InvalidRequest(f"--interval is {interval}; it must be more than 0")
    replication = Replication(
        name=name,
        naming=TopicNaming.parse(topic, rename or ()),
        from_latest=start == "latest",
        skips_lost=skip_lost,
        bytes_per_s=rate,
    )

    def report(status: ReplicationStatus) -> None:
        if output_format is OutputFormat.JSON:
            print_json_line(status)
        else:
            print_line(status.line())

    async def work(interrupted: Interruption) -> None:
        stop = asyncio.Event()
        async with task_scope() as tasks:
            running = tasks.start(
                replicate(
                    replication,
                    source,
                    target,
                    report,
                    stop=stop,
                    interval_s=interval_s,
                )
            )
            async with interrupted.until_requested():
                await asyncio.wait([running])
            stop.set()
            with interrupted.shielded(STOP_S):
                await running

    interruption.run(work)


@command(
    app,
    "danube replicate status edge --from danube://edge --to danube://centre",
    "danube replicate status edge --from danube://edge --to danube://centre "
    "--format json",
)
def status(name: Name, *, source: Source, target: Target) -> Result:
    """Show how far a replication is behind, by topic."""
    rows = asyncio.run(find_lag(_named(name), source, target))
    return Result(
        rows,
        Table.of(
            rows,
            {
                "Topic": "topic",
                "Target": "target",
                "Next offset": "next",
                "Lag": "lag",
            },
        ),
    )


@command(
    app,
    "danube replicate cut-over edge --from danube://edge --to danube://centre",
    "danube replicate cut-over edge --to danube://centre --yes",
)
def cut_over(
    name: Name,
    *,
    target: Target,
    source: LostSource = None,
    yes: parameters.Yes = False,
) -> Result:
    """
    Let the target take over: its subscriptions continue where those of the source are.

    Stop the producers and consumers of the source first. The command mirrors what is
    left, ends the replication for good, and creates the subscriptions at the target at
    the translated offsets. It may be repeated if it is interrupted. If the source is
    lost, leave out --from: the subscriptions then continue where they were within 10
    seconds before the source was lost, so some messages are delivered again.
    """
    confirm(f"End the replication {name}, and let {target} take over?", is_sure=yes)
    moved: Sequence[MovedSubscription] = asyncio.run(
        run_cut_over(_named(name), source, target)
    )
    return Result(
        list(moved),
        Table.of(
            moved,
            {
                "Topic": "topic",
                "Subscription": "subscription",
                "Offset at the source": "source_cursor",
                "Offset at the target": "cursor",
            },
        ),
    )


@command(app, "danube replicate remove edge --from danube://edge --to danube://centre")
def remove(
    name: Name,
    *,
    target: Target,
    source: LostSource = None,
    yes: parameters.Yes = False,
) -> None:
    """
    Forget a replication: its position, and its holds on the topics of the source.

    The mirrored topics stay. A replication of the same name begins anew.
    """
    confirm(f"Forget the position of the replication {name}?", is_sure=yes)
    asyncio.run(run_remove(_named(name), source, target))


def _named(name: str) -> Replication:
    """Return a replication by its name; its topics are those that it has."""
    return Replication(name=name, naming=TopicNaming((), ()))
