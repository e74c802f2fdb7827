"""The findings of `danube doctor`: verdicts on measurements, and advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from statistics import median

from pydanube.client.operations.connectors import StoredConnectorList
from pydanube.model.clusters import ClusterDescription
from pydanube.model.descriptions import StorageDescription
from pydanube.model.findings import (
    LATE_S,
    FindingKind,
    Findings,
    SubscriptionFinding,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.quantity_formats import format_age, format_bytes
from pydanube.model.version import __version__

SYNC_S_WARNING = 0.01
SYNC_S_PROBLEM = 0.1
"""Above this, each acknowledgement takes a tenth of a second or more."""
FREE_BYTES_WARNING = 10 * 1024**3
FREE_BYTES_PROBLEM = 1024**3
OPEN_FILES_MIN = 16_384
"""The default ``listen.connections_max`` and 6,000 files."""
MEMORY_PER_TAIL = 3
"""Unsealed messages, the segments that are encoded from them, and everything else."""
CERTIFICATE_WARNING = timedelta(days=30)
CLOCK_SKEW_S_WARNING = 3.0
"""Clocks are compared through a header with a resolution of a second."""
UPLOAD_S_WARNING = 3600.0
SHOWN_MAX = 3


class Verdict(Enum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    """Something may fail soon, or is slower than it needs to be."""
    PROBLEM = "problem"
    """Something fails, or loses its speed, now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    verdict: Verdict
    found: str
    """The measurement."""
    advice: str = ""
    """The next step, for verdicts other than OK."""


def worse_than(value: float, warning: float, problem: float) -> Verdict:
    """Return the verdict on a *value* that should be small."""
    if value > problem:
        return Verdict.PROBLEM
    return Verdict.WARNING if value > warning else Verdict.OK


def disk_latency(directory: str, syncs_s: Sequence[float]) -> Finding:
    """Judge how long small writes took until they were on disk."""
    middle, longest = median(syncs_s), max(syncs_s)
    return Finding(
        check="disk latency",
        verdict=worse_than(middle, SYNC_S_WARNING, SYNC_S_PROBLEM),
        found=f"{directory}: {middle * 1000:.1f} ms for a synced write, "
        f"{longest * 1000:.1f} ms at most",
        advice="give data_dir a local SSD without other writers; every acknowledgement "
        "waits for the disk",
    )


def free_space(directory: str, free: int, total: int) -> Finding:
    """Judge the free space of a disk."""
    verdict = worse_than(-free, -FREE_BYTES_WARNING, -FREE_BYTES_PROBLEM)
    return Finding(
        check="free disk space",
        verdict=verdict,
        found=f"{directory}: {format_bytes(free)} of {format_bytes(total)} are free",
        advice="delete data, set a retention (danube topics retention), or move "
        "history to an object store (storage.remote.url); without space publishing "
        "is refused",
    )


def open_files(limit: int) -> Finding:
    """Judge the maximum number of files and connections of a process."""
    return Finding(
        check="open files",
        verdict=worse_than(-limit, -OPEN_FILES_MIN, -OPEN_FILES_MIN / 4),
        found=f"a process may have {limit:,} open files and connections",
        advice=f"raise the limit to {OPEN_FILES_MIN:,} or more: LimitNOFILE= of the "
        "systemd unit, or ulimit -n",
    )


def memory(available: int, tail_bytes_max: int) -> Finding:
    """Judge the memory for a broker with this setting ``storage.tail_bytes_max``."""
    needed = MEMORY_PER_TAIL * tail_bytes_max
    return Finding(
        check="memory",
        verdict=worse_than(-available, -needed, -tail_bytes_max),
        found=f"{format_bytes(available)} are available; storage.tail_bytes_max is "
        f"{format_bytes(tail_bytes_max)}",
        advice=f"make {format_bytes(needed)} available, or lower "
        "storage.tail_bytes_max",
    )


def event_loop(*, has_uvloop: bool) -> Finding:
    """Judge the event loop that the broker would use."""
    return Finding(
        check="event loop",
        verdict=Verdict.OK if has_uvloop else Verdict.WARNING,
        found="uvloop" if has_uvloop else "asyncio's own, which is slower",
        advice="pip install uvloop",
    )


def certificate(path: str, expires_at: datetime, now: datetime) -> Finding:
    """Judge when the certificate in the file *path* expires."""
    left = expires_at - now
    day = f"{expires_at:%Y-%m-%d}"
    if left <= timedelta():
        verdict, found = Verdict.PROBLEM, f"{path} expired on {day}"
    else:
        is_near = left < CERTIFICATE_WARNING
        verdict = Verdict.WARNING if is_near else Verdict.OK
        found = f"{path} expires on {day}, in {left.days} days"
    return Finding(
        check="certificate",
        verdict=verdict,
        found=found,
        advice="replace the file; the broker reads it again by itself",
    )


def unreadable_certificate(path: str, reason: str) -> Finding:
    """Return the finding that a certificate cannot be read."""
    return Finding(
        check="certificate",
        verdict=Verdict.PROBLEM,
        found=f"{path} cannot be read: {reason}",
        advice="correct tls.certificate_file; danube certs init makes certificates "
        "for development",
    )


def broker_version(name: str, round_trip_s: float) -> Finding:
    """Judge the version in the *name* that a broker gives itself."""
    version = name.rpartition(" ")[2]
    found = f"{name} answers after {round_trip_s * 1000:.1f} ms"
    if version == __version__:
        return Finding(check="broker", verdict=Verdict.OK, found=found)
    return Finding(
        check="broker",
        verdict=Verdict.WARNING,
        found=f"{found}; this client is {__version__}",
        advice="use the same version on both sides; the older one lacks features",
    )


def unreachable(check: str, reason: str, advice: str) -> Finding:
    """Return the finding that a port of the broker does not answer."""
    return Finding(check=check, verdict=Verdict.PROBLEM, found=reason, advice=advice)


def silent_broker(name: str, reason: str) -> Finding:
    """Return the finding that one broker of a cluster, or the only one, fails."""
    return Finding(
        check=f"broker {name}" if name else "broker",
        verdict=Verdict.PROBLEM,
        found=reason,
        advice="its topics stand still until it goes on, or others take them over; see "
        "its log, and the load and the disk of its machine",
    )


def readiness(*, is_ready: bool, reasons: Sequence[str]) -> Finding:
    """Judge the answer of /readyz."""
    if is_ready and not reasons:
        return Finding(check="readiness", verdict=Verdict.OK, found="topics are served")
    return Finding(
        check="readiness",
        verdict=Verdict.WARNING if is_ready else Verdict.PROBLEM,
        found="; ".join(reasons),
        advice="see the broker's log, and docs/guide/runbooks.md",
    )


def clock(skew_s: float) -> Finding:
    """Judge by how many seconds the broker's clock is ahead of this machine's."""
    direction = "ahead of" if skew_s > 0 else "behind"
    is_ok = abs(skew_s) <= CLOCK_SKEW_S_WARNING
    return Finding(
        check="clock",
        verdict=Verdict.OK if is_ok else Verdict.WARNING,
        found="the broker and this machine agree"
        if is_ok
        else f"the broker is {round(abs(skew_s))} s {direction} this machine",
        advice="synchronise both clocks (NTP); times of messages, delays, retention "
        "and tokens depend on them",
    )


def storage(broker: str, described: StorageDescription) -> Finding:
    """Judge the segments and uploads of a broker."""
    check = f"storage of {broker}" if broker else "storage"
    found = f"{format_bytes(described.local_bytes)} of segments on the local disk"
    if described.is_refusing or described.problems:
        reasons = list(described.problems)
        if described.is_refusing:
            reasons.insert(0, "publishing is refused until segments are uploaded")
        return Finding(
            check=check,
            verdict=Verdict.PROBLEM,
            found="; ".join(reasons),
            advice="run danube storage status",
        )
    if described.backlog_age_s > UPLOAD_S_WARNING:
        age = format_age(described.backlog_age_s)
        return Finding(
            check=check,
            verdict=Verdict.WARNING,
            found=f"{described.backlog_segments} segments are not uploaded, the oldest "
            f"for {age}",
            advice="check the object store, its credentials and the network; run "
            "danube storage status",
        )
    return Finding(check=check, verdict=Verdict.OK, found=found)


def cluster(described: ClusterDescription) -> Finding:
    """Judge whether all shards of a cluster are served."""
    names = ", ".join(each.broker_id for each in described.brokers)
    if not described.unserved_count:
        return Finding(
            check="cluster",
            verdict=Verdict.OK,
            found=f"{names} serve all {described.shard_count} shards",
        )
    return Finding(
        check="cluster",
        verdict=Verdict.PROBLEM,
        found=f"{described.unserved_count} of {described.shard_count} shards are not "
        "served",
        advice="this is normal for some seconds after a broker has failed; if it "
        "lasts, run danube cluster status and see the brokers' logs",
    )


def connectors(found: StoredConnectorList) -> Finding:
    """Judge the stored connectors by what their workers report."""
    check = "connectors"
    problems = {
        each.name: each.problem(found.now)
        for each in found.connectors
        if each.health(found.now).is_problem
    }
    if not problems:
        count = len(found.connectors)
        return Finding(
            check=check,
            verdict=Verdict.OK,
            found=f"{count:,} stored, none of which has a problem",
        )
    names = list(problems)
    shown = "; ".join(f"{each}: {problems[each]}" for each in names[:SHOWN_MAX])
    more = f"; and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return Finding(
        check=check,
        verdict=Verdict.PROBLEM,
        found=f"{len(names):,} of {len(found.connectors):,} stored: {shown}{more}",
        advice="danube connect list shows all; start workers with danube connect work",
    )


def subscriptions(
    found: Findings, topic_count: int, *, is_complete: bool = True
) -> Finding:
    """
    Judge the subscriptions by what the brokers have found.

    *topic_count* is the number of all topics and partitions.  *is_complete* says that
    all brokers have answered.
    """
    check = "subscriptions"
    closed = max(0, topic_count - found.topic_count)
    why = "not open" if is_complete else "not open, or their broker does not answer"
    note = f"; {closed:,} topics are {why}, and not examined" if closed else ""
    kinds = {each.kind for each in found.subscriptions}
    problems = [each for each in found.subscriptions if each.kind.is_problem]
    stuck = [each for each in problems if each.kind is not FindingKind.DEAD_LETTERS]
    if problems:
        named = stuck or problems
        count = f"{len(named):,}"
        if len(found.subscriptions) < found.finding_count:
            count = f"at least {count}"
        what = (
            "deliver nothing"
            if stuck
            else "cannot copy failed messages to their dead-letter topics"
        )
        return Finding(
            check=check,
            verdict=Verdict.PROBLEM,
            found=f"{count} {what}: {_names(named)}{note}",
            advice="danube subscriptions describe has the reason for each of them",
        )
    if FindingKind.LATE in kinds:
        late = [each for each in found.subscriptions if each.kind is FindingKind.LATE]
        return Finding(
            check=check,
            verdict=Verdict.WARNING,
            found=f"{len(late):,} have messages that are older than "
            f"{format_age(LATE_S)}: {_names(late)}{note}",
            advice="add consumers or make them faster; danube lag shows all",
        )
    return Finding(
        check=check,
        verdict=Verdict.OK,
        found=f"{found.subscription_count:,}, none of which is blocked or late{note}",
    )


def _names(found: Iterable[SubscriptionFinding]) -> str:
    names = [f"{each.subscription} of {each.topic}" for each in found]
    shown = ", ".join(names[:SHOWN_MAX])
    return shown if len(names) <= SHOWN_MAX else f"{shown} and others"
