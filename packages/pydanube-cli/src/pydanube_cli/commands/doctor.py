"""`danube doctor`: checks a machine and a running broker, and says what to do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.client.client import DEFAULT_URL
from pydanube.model.extras import MissingExtra, require
from pydanube.model.positions import to_datetime
from pydanube_cli.diagnosis.broker_checks import check_broker
from pydanube_cli.diagnosis.findings import Finding, Verdict
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import run
from pydanube_cli.presentation.output import Columns, Result, Table

if TYPE_CHECKING:
    from pydanube_broker.servers.settings.config import BrokerConfig

BROKER_MISSING = "the broker is not installed, pip install 'pydanube[broker]' brings it"

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

COLUMNS: Columns = {
    "Check": "check",
    "Result": lambda each: each.verdict.value,
    "Found": "found",
    "What to do": lambda each: None if each.verdict is Verdict.OK else each.advice,
}


@command(
    app,
    "danube doctor",
    "danube doctor --config broker.yaml --machine",
    "danube doctor --url danube://broker.example:6651 "
    "--http-url http://broker.example:8080",
)
def doctor(
    *,
    config: Path | None = None,
    data_dir: Path | None = None,
    http_url: str | None = None,
    machine: Annotated[bool, typer.Option("--machine")] = False,
    url: parameters.Url = DEFAULT_URL,
) -> Result:
    """
    Check this machine and a running broker, and say what to do.

    On this machine: how long the disk needs to sync a write, free space, open files,
    memory, and when the certificate expires. At the broker: whether it answers and
    serves topics, its version and clock, the shards of a cluster, uploads, and
    subscriptions that are blocked or late. A broker of a cluster, or a process of
    several, that does not answer is a problem of its own, found within seconds. Nothing
    is changed. The exit code is 1 if there is a problem, and 0 if there are only
    warnings. Without the packages of the broker, only the broker at the URL is checked.

    Args:
        config (FILE): The YAML file with the settings of the broker on this machine;
            also set by the variable DANUBE_CONFIG.
        data_dir (DIR): The data directory of the broker on this machine; by default
            as in the settings.
        http_url (URL): The HTTP port of the broker; by default as the broker says.
        machine: Check only this machine, not a broker.
    """
    settings = find_settings(
        config, data_dir, "danube doctor for this machine", is_needed=machine
    )
    found = [] if settings is None else check_this_machine(settings)
    if not machine:
        found += run(lambda _: check_broker(url, http_url))
    counts = {
        verdict: sum(each.verdict is verdict for each in found)
        for verdict in (Verdict.PROBLEM, Verdict.WARNING)
    }
    summary = ", ".join(
        f"{count} {verdict.value}{'s' * (count != 1)}"
        for verdict, count in counts.items()
    )
    if settings is None:
        summary += f"; this machine was not checked: {BROKER_MISSING}"
    return Result(
        found,
        Table.of(found, COLUMNS),
        "",
        summary,
        exit_code=1 if counts[Verdict.PROBLEM] else 0,
    )


def find_settings(
    config: Path | None, data_dir: Path | None, feature: str, *, is_needed: bool = False
) -> BrokerConfig | None:
    """
    Return the settings of a broker on this machine; None: it cannot run here.

    Raises:
        MissingExtra: The packages of the broker are not installed, and they are needed:
            to read *config*, to look at *data_dir*, or because *is_needed*.
    """
    try:
        require("broker", feature)
    except MissingExtra:
        if is_needed or config is not None or data_dir is not None:
            raise
        return None
    # The extra is not needed for brokers on other machines.
    from pydanube_broker.servers.settings.config import load_config  # noqa: PLC0415

    flags = {"data_dir": None if data_dir is None else str(data_dir)}
    return load_config(config, os.environ, flags)


def check_this_machine(config: BrokerConfig) -> list[Finding]:
    """Return the findings on this machine for a broker with *config*."""
    from pydanube_cli.diagnosis.machine_checks import check_machine  # noqa: PLC0415

    return list(check_machine(config, to_datetime(time.time_ns() // 1000)))
