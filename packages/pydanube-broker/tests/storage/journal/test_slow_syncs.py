"""A slow disk is reported, and not once for each of its syncs."""

from pydanube_broker.storage.journal.slow_syncs import (
    INTERVAL_S,
    SLOW_SYNC_S,
    SlowSyncs,
)


def test_fast_syncs_are_not_reported():
    assert SlowSyncs().warning(SLOW_SYNC_S - 0.01, now=5.0) is None


def test_slow_sync_is_reported_once_per_interval_with_those_since():
    syncs = SlowSyncs()
    first = syncs.warning(0.6, now=5.0)
    assert first == "the disk is slow: a sync of the journal took 0.6 s"
    assert syncs.warning(2.5, now=6.0) is None
    assert syncs.warning(0.7, now=5.0 + INTERVAL_S) == (
        "the disk is slow: a sync of the journal took 0.7 s; 2 were slow since the "
        "last warning, and took up to 2.5 s"
    )
    again = syncs.warning(0.6, now=5.0 + 2 * INTERVAL_S)
    assert again == "the disk is slow: a sync of the journal took 0.6 s"
