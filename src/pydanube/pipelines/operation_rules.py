"""
The checks of the sections about the operation of a pipeline.  Pure.

These are ``restart``, ``schedule``, ``metrics``, ``lineage`` and ``alerts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydanube.declarations.problems import Path
from pydanube.declarations.sections import parse_duration
from pydanube.model.errors import InvalidConfig
from pydanube.pipelines.schedules import parse_schedule
from pydanube.pipelines.spec import (
    AlertRule,
    AlertSection,
    Condition,
    CronSchedule,
    Lineage,
    Restart,
    Spec,
    parse_trigger,
)
from pydanube.security.addresses import parse_listen


def operation_problems(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the problems of *spec*, each with its path."""
    if spec.restart is not None:
        yield from _restart_problems(spec.restart)
    if spec.schedule is not None:
        yield from _schedule_problems(spec, spec.schedule)
    if spec.metrics is not None:
        try:
            parse_listen(spec.metrics.listen)
        except InvalidConfig as error:
            yield ("metrics", "listen"), str(error)
    if spec.lineage is not None:
        yield from _lineage_problems(spec.lineage)
    if spec.alerts is not None:
        yield from _alert_problems(spec.alerts)


def _restart_problems(restart: Restart) -> Iterator[tuple[Path, str]]:
    for name in ("backoff", "backoff_max", "reset_after"):
        try:
            parse_duration(getattr(restart, name))
        except InvalidConfig as error:
            yield ("restart", name), str(error)
    if restart.count < 0:
        yield ("restart", "count"), "must be 0 or more"


def _schedule_problems(
    spec: Spec, schedule: CronSchedule
) -> Iterator[tuple[Path, str]]:
    try:
        parse_schedule(schedule.cron, schedule.timezone)
    except InvalidConfig as error:
        is_zone = "time zone" in str(error)
        yield ("schedule", "timezone" if is_zone else "cron"), str(error)
    triggers: dict[Path, object] = {("trigger",): spec.trigger}
    for name, sink in spec.sinks.items():
        if sink.trigger is not None:
            triggers["sinks", name, "trigger"] = sink.trigger
    for path, value in triggers.items():
        try:
            ends = parse_trigger(value).ends
        except InvalidConfig:
            continue
        if not ends:
            yield path, "a pipeline with a schedule needs the trigger available-now"


def _lineage_problems(lineage: Lineage) -> Iterator[tuple[Path, str]]:
    if (lineage.url is None) == (lineage.file is None):
        yield ("lineage",), "set either url or file"
    elif lineage.url is not None and not re.match(r"https?://.", lineage.url):
        yield ("lineage", "url"), f"{lineage.url!r} is not an http or https URL"
    if lineage.api_key is not None and lineage.url is None:
        yield ("lineage", "api_key"), "only with url"


def _alert_problems(alerts: AlertSection) -> Iterator[tuple[Path, str]]:
    if not re.match(r"https?://.", alerts.url):
        yield ("alerts", "url"), "is not an http or https URL"
    for name, rule in alerts.rules.items():
        path: Path = ("alerts", "rules", name)
        try:
            _ = rule.for_s
        except InvalidConfig as error:
            yield (*path, "for"), str(error)
        problem = _limit_problem(rule)
        if problem:
            yield (*path, "above"), problem


def _limit_problem(rule: AlertRule) -> str | None:
    if rule.when is Condition.FAILED:
        return None if rule.above is None else "is not for failures"
    if rule.above is None:
        example = "10m" if rule.when.is_duration else "1000"
        return f"is missing, such as {example}"
    try:
        limit = rule.limit
    except ValueError:
        return f"{rule.above!r} is not a number"
    except InvalidConfig as error:
        return str(error)
    return None if limit >= 0 else "must be 0 or more"
