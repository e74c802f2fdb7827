"""`danube debug`: collects what a maintainer needs to find the cause of a problem."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_cli.commands.doctor import (
    BROKER_MISSING,
    check_this_machine,
    find_settings,
)
from pydanube_cli.diagnosis.broker_checks import check_broker
from pydanube_cli.diagnosis.debug_bundle import DebugBundle, Sources, local_bundle
from pydanube_cli.diagnosis.findings import Finding
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import run
from pydanube_cli.presentation.output import Fields, Result

app = parameters.command_group(
    "Collect what a maintainer needs to find the cause of a problem.",
    "danube debug bundle --log broker.log",
)


@app.callback()
def debug() -> None:
    """Keep the subcommand, which Typer would merge into the group."""


@command(
    app,
    "danube debug bundle",
    "danube debug bundle --config broker.yaml --log /var/log/danube/broker.log",
    "danube debug bundle --url danube://broker.example:6651 "
    "--http-url http://broker.example:8080 --output broker.tar.gz",
)
def bundle(
    *,
    config: Path | None = None,
    data_dir: Path | None = None,
    http_url: str | None = None,
    log: list[Path] | None = None,
    output: Path | None = None,
    topics: Annotated[int, typer.Option(min=0)] = 1000,
    url: parameters.Url = DEFAULT_URL,
) -> Result:
    """
    Write one archive with what a maintainer needs, without secrets.

    The archive has versions, settings, the findings of danube doctor, metrics, the
    state of the broker's process, descriptions of the cluster and of topics, and the
    ends of logs. It has no messages. Passwords, tokens and keys are replaced by ***,
    but names of topics, hosts and files are included: look through the archive before
    you send it to somebody. A broker that does not answer leaves out its parts, and
    so does this machine without the packages of the broker, or with invalid settings.

    Args:
        config (FILE): The YAML file with the settings of the broker on this machine;
            also set by the variable DANUBE_CONFIG.
        data_dir (DIR): The data directory of the broker on this machine; by default
            as in the settings.
        http_url (URL): The HTTP port of the broker; by default as the broker says.
            Credentials come from the
            variables DANUBE_TOKEN and DANUBE_API_KEY.
        log (FILE): A log of the broker, of which the last 2 MiB are included; may be
            given several times.
        output (FILE): The archive; by default danube-debug-TIME.tar.gz in this
            directory.
        topics (COUNT): The maximum number of topics to describe.
    """
    reason = BROKER_MISSING
    try:
        settings = find_settings(config, data_dir, "danube debug for this machine")
    except InvalidConfig as error:
        # The settings may be the problem that the bundle is for.
        settings, reason = None, f"the settings are invalid: {error}"
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = output or Path(f"danube-debug-{now}.tar.gz")
    sources = Sources(os.environ, url, http_url, tuple(log or ()), topics_max=topics)

    def find_problems() -> list[Finding]:
        local = [] if settings is None else check_this_machine(settings)
        return local + run(lambda _: check_broker(url, http_url))

    if settings is None:
        made = DebugBundle(sources, {})
        names = ("settings.json", "process.json")
        made.missing |= dict.fromkeys(names, reason)
    else:
        made = local_bundle(sources, settings)
    made.add("findings.json", find_problems)
    made.add_machine()
    run(lambda _: made.add_broker())
    made.add_http()
    try:
        made.write(path)
    except OSError as error:
        raise InvalidRequest(
            f"{path} cannot be written: {error.strerror}; name another file with "
            "--output"
        ) from error
    facts = {
        "archive": str(path),
        "bytes": path.stat().st_size,
        "files": len(made.files) + 1,
        "missing": ", ".join(made.missing) or None,
    }
    titles = {name.capitalize(): value for name, value in facts.items()}
    return Result({**facts, "missing": made.missing}, Fields(titles.items()))
