"""Memory of long frames is used again only if nothing refers to it."""

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.wire.native.body_memory import (
    REUSED_BYTES_MAX,
    REUSED_BYTES_MIN,
    REUSED_COUNT_MAX,
    BodyMemory,
)

LENGTH = REUSED_BYTES_MIN


def address_of(view: memoryview) -> int:
    return pa.py_buffer(view).address


def column_of(view: memoryview) -> pa.Array:
    """Return an array without a copy, as a column of a batch."""
    return pa.Array.from_buffers(
        pa.uint8(), len(view) - 8, [None, pa.py_buffer(view[8:])]
    )


def as_batch(view: memoryview) -> pa.RecordBatch:
    return pa.record_batch([column_of(view)], names=["payload"]).slice(1)


HOLDERS = {
    "the view": lambda view: view,
    "a part": lambda view: view[5:],
    "a view of a view": lambda view: memoryview(view[5:])[3:].cast("B"),
    "its object": lambda view: view.obj,
    "an Arrow buffer": pa.py_buffer,
    "a part of a buffer": lambda view: pa.py_buffer(view).slice(9),
    "a column": column_of,
    "a batch": as_batch,
}
READ = {
    "a column": lambda column: bytes(column.buffers()[1]),
    "a batch": lambda batch: bytes(batch.column(0).buffers()[1]),
}


def test_memory_that_nothing_refers_to_is_used_again():
    memory = BodyMemory()
    view = memory.take(LENGTH)
    first = address_of(view)
    del view
    assert memory.free_bytes >= LENGTH
    # A little longer, as frames with as many messages may be.
    view = memory.take(LENGTH + LENGTH // 10)
    assert (address_of(view), len(view)) == (first, LENGTH + LENGTH // 10)
    assert memory.free_bytes == 0


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_is_not_used_again_while_something_refers_to_it(holder):
    memory = BodyMemory()
    held = HOLDERS[holder](memory.take(LENGTH))
    assert memory.free_bytes == 0
    other = memory.take(LENGTH)
    other[:] = b"o" * LENGTH
    assert b"o" not in READ.get(holder, bytes)(held)
    del held
    assert memory.free_bytes >= LENGTH


@given(
    steps=st.lists(
        st.tuples(
            st.integers(LENGTH - 1, LENGTH + LENGTH // 4),
            st.sampled_from(sorted(HOLDERS)),
            st.integers(0, REUSED_COUNT_MAX + 2),
        ),
        max_size=20,
    )
)
def test_what_refers_to_memory_never_changes(steps):
    memory = BodyMemory()
    held = []
    for number, (length, holder, dropped) in enumerate(steps):
        view = memory.take(length)
        assert len(view) == length
        view[:] = bytes([number]) * length
        held.append((number, holder, HOLDERS[holder](view)))
        del view
        if dropped < len(held):
            del held[dropped]
        for expected, name, each in held:
            found = READ.get(name, bytes)(each)
            # The object itself has room for longer bodies.
            assert set(found[: LENGTH - 16 : 8192]) == {expected}


def test_kept_memory_is_bounded():
    memory = BodyMemory()
    views = [memory.take(REUSED_BYTES_MAX) for _ in range(REUSED_COUNT_MAX + 3)]
    assert len({address_of(view) for view in views}) == len(views)
    views.clear()
    assert memory.free_bytes == REUSED_COUNT_MAX * (REUSED_BYTES_MAX * 9 // 8)
    memory.release()
    assert memory.free_bytes == 0
    # Neither long nor short memory is kept.
    memory.take(REUSED_BYTES_MAX + 1)
    memory.take(REUSED_BYTES_MIN - 1)
    assert memory.free_bytes == 0


def test_a_body_does_not_take_memory_of_more_than_twice_its_length():
    memory = BodyMemory()
    memory.take(4 * LENGTH)
    view = memory.take(LENGTH)
    assert len(view.obj) < 2 * LENGTH


def test_memory_that_is_held_forever_gives_way():
    memory = BodyMemory()
    held = [memory.take(LENGTH) for _ in range(REUSED_COUNT_MAX)]
    memory.take(LENGTH)
    assert memory.free_bytes >= LENGTH
    assert len(held) == REUSED_COUNT_MAX


def test_memory_is_released_once_no_frame_took_it():
    memory = BodyMemory()
    memory.take(LENGTH)
    memory.release_unused()
    assert memory.free_bytes >= LENGTH
    memory.release_unused()
    assert memory.free_bytes == 0


def test_other_threads_may_hold_and_drop_memory():
    memory = BodyMemory()
    views: SimpleQueue[tuple[int, memoryview] | None] = SimpleQueue()

    def wrong_views() -> int:
        wrong = 0
        while (item := views.get()) is not None:
            number, view = item
            wrong += {view[0], view[-1]} != {number}
            del item, view
        return wrong

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(wrong_views) for _ in range(2)]
        for number in range(200):
            view = memory.take(LENGTH)
            view[:] = bytes([number]) * LENGTH
            views.put((number, view))
            del view
        for _ in readers:
            views.put(None)
        assert [reader.result() for reader in readers] == [0, 0]
