"""Three processes of one broker, over one SQLite file and journals on one disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of
from pydanube_broker.metadata.shared_sqlite import SharedSqliteStore, open_shared_sqlite
from support.fakes.broker_clusters import BrokerCluster, Member
from support.scratch import memory_directory
from support.worlds.chance import Chance
from support.worlds.cluster import ClusterBroker, running_cluster

PROCESSES_MAX = 16
ROWS = 256


class ProcessCluster(BrokerCluster):
    """
    The processes of a broker, as brokers in this process.

    Each opens the file and the directory of the journals for itself, so that locks and
    pipes are between them as between processes.
    """

    def __init__(
        self,
        directory: Path,
        store: SharedSqliteStore,
        wall_clock_us: Callable[[], int],
        **options: Any,
    ) -> None:
        super().__init__(wall_clock_us, **options)
        self._directory = directory
        self._memory = memoryview(bytearray(bytes_of(PROCESSES_MAX, ROWS)))
        self._numbers: dict[str, int] = {}
        self.store = store  # type: ignore[assignment]  # Both are metadata stores.

    @asynccontextmanager
    async def _open(self, broker_id: str, storage: Any) -> AsyncIterator[Member]:
        number = self._numbers.setdefault(broker_id, len(self._numbers) + 1)
        counts = SharedCounts(
            self._memory, number=number, count=PROCESSES_MAX, rows=ROWS
        )
        async with (
            open_shared_sqlite(_file_in(self._directory), broker_id) as store,
            self._member(
                broker_id,
                store,
                storage,
                journals=self._directory / "journals",
                shared_counts=counts,
            ) as member,
        ):
            try:
                yield member
            finally:
                counts.clear(number)
                # Others do not reach it while it closes its files.
                self.members.pop(broker_id, None)

    def lose(self, broker_id: str) -> None:
        """End the session of a process; its lock ends with its journal."""
        self.members.pop(broker_id).session.lease.end()


@asynccontextmanager
async def processes_world(
    chance: Chance, **options: Any
) -> AsyncIterator[ClusterBroker]:
    """Run the processes; the options are those of ``memory_broker``."""
    with TemporaryDirectory(prefix="danube-processes-", dir=memory_directory()) as name:
        directory = Path(name)
        (directory / "journals").mkdir()
        async with (
            open_shared_sqlite(_file_in(directory), "world") as store,
            running_cluster(
                partial(ProcessCluster, directory, store), chance, **options
            ) as world,
        ):
            yield world


def _file_in(directory: Path) -> Path:
    return directory / "metadata.sqlite"
