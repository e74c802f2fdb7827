"""
Rules of the protocol of clusters that a run can leave out.

A few seeds find that the fence or one of the comparisons is missing, and one in fifteen
that shards are served before their records say open.  No seed has found yet that
journals are not frozen; the model of takeovers does
(``tests/properties/test_takeover.py``).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest.mock import patch

from pydanube_broker.cluster.journal_host import JournalHost
from pydanube_broker.cluster.takeover import Takeovers
from pydanube_broker.metadata.store import HasValue
from pydanube_broker.storage.journal.shard_recovery import SourceReading
from support.fakes.clusters import LateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_read_ahead = SourceReading.read_ahead
_look, _change = Takeovers._look, Takeovers._change
_store_change = LateStore._change
_adopt = JournalHost.adopt


async def _read_without_fence(reading: Any, session: Any) -> None:
    await _read_ahead(reading, session)
    reading.is_fenced = True


async def _look_without_absence(takeovers: Any, shard: int) -> Any:
    return replace(await _look(takeovers, shard), is_owner_gone=True)


async def _claim_without_absence(takeovers: Any, shard: int, change: Any) -> None:
    await _change(takeovers, shard, replace(change, gone=None))


async def _claim_without_freezing(takeovers: Any, shard: int, change: Any) -> None:
    await _change(takeovers, shard, replace(change, freeze=None))


async def _change_any_epoch(store: Any, comparisons: Any, operations: Any) -> Any:
    kept = [each for each in comparisons if not isinstance(each, HasValue)]
    return await _store_change(store, kept, operations)


async def _adopt_and_serve(host: Any, shard: int, epoch: int) -> None:
    await _adopt(host, shard, epoch)
    await host._server.serve(shard, epoch, host._read[shard].topics)


async def _serve_nothing(host: Any, shard: int, _epoch: int) -> None:
    # It was served when it was adopted.
    del host._read[shard]
    host._journal.trim_holds.discard(shard)


Replacements: TypeAlias = "dict[tuple[type, str], Callable[..., Any]]"

BROKEN_RULES: dict[str, Replacements] = {
    "fence_before_read": {(SourceReading, "read_to_end"): _read_without_fence},
    "claim_compares_absence": {
        (Takeovers, "_look"): _look_without_absence,
        (Takeovers, "_change"): _claim_without_absence,
    },
    "claim_freezes_journal": {(Takeovers, "_change"): _claim_without_freezing},
    "epoch_comparison": {(LateStore, "_change"): _change_any_epoch},
    "serve_only_after_open": {
        (JournalHost, "adopt"): _adopt_and_serve,
        (JournalHost, "serve"): _serve_nothing,
    },
}
"""The replacements of methods, by the rule that is left out."""


@contextmanager
def leaving_out(replacements: Replacements) -> Iterator[None]:
    """Replace methods during the body, to leave out a rule."""
    with ExitStack() as stack:
        for (owner, name), method in replacements.items():
            stack.enter_context(patch.object(owner, name, method))
        yield
