"""The processes of a broker count together what its limits hold for."""

from __future__ import annotations

from pydanube_broker.dispatch.shared_counts import (
    ONE_PROCESS,
    PROBES_MAX,
    SharedCounts,
    bytes_of,
)

ROWS = 128


def processes(count, memory=None):
    """Return the counts of each process."""
    memory = memory or bytearray(bytes_of(count, ROWS))
    return [
        SharedCounts(
            memoryview(memory), number=number, count=count, rows=ROWS, proof="secret"
        )
        for number in range(1, count + 1)
    ]


def test_each_process_sees_what_the_others_count():
    first, second, third = (each.of("user:billing") for each in processes(3))
    first.add("connections", 2)
    second.add("connections", 3)
    second.add("sessions", 1)
    assert [each.others("connections") for each in (first, second, third)] == [3, 2, 5]
    assert third.others("sessions") == 1
    second.add("connections", -3)
    assert first.others("connections") == 0


def test_names_are_counted_apart():
    first, second = processes(2)
    first.of("user:a").add("connections", 1)
    assert second.of("user:a").others("connections") == 1
    assert second.of("user:b").others("connections") == 0


def test_news_are_what_was_added_since_the_last_look():
    first, second = (each.of("/shop") for each in processes(2))
    first.add("bytes_in_per_s", 100)
    # What was there before counts as known.
    assert second.news("bytes_in_per_s") == 0
    first.add("bytes_in_per_s", 20)
    first.add("bytes_in_per_s", 3)
    assert second.news("bytes_in_per_s") == 23
    assert second.news("bytes_in_per_s") == 0


def test_counts_of_a_process_that_ended_are_gone_and_its_next_run_begins_anew():
    memory = bytearray(bytes_of(2, ROWS))
    supervisor, other = processes(2, memory)
    seen, ended = supervisor.of("/shop"), other.of("/shop")
    seen.news("requests_per_s")
    ended.add("requests_per_s", 50)
    ended.add("connections", 4)
    assert seen.news("requests_per_s") == 50
    supervisor.clear(2)
    assert seen.others("connections") == 0
    assert seen.news("requests_per_s") == 0
    again = processes(2, memory)[1].of("/shop")
    again.add("requests_per_s", 7)
    assert seen.news("requests_per_s") == 7


def test_released_row_serves_another_name_and_hides_no_other():
    first, second = processes(2)
    names = [f"user:{number}" for number in range(ROWS // 2)]
    counts = {name: first.of(name) for name in names}
    for name in names:
        counts[name].add("connections", 1)
    for name in names[::2]:
        counts[name].release()
    for index, name in enumerate(names):
        assert second.of(name).others("connections") == index % 2
    for number in range(ROWS // 4):
        first.of(f"user:new-{number}").add("connections", 5)
    for number in range(ROWS // 4):
        assert second.of(f"user:new-{number}").others("connections") == 5
    for name in names[1::2]:
        assert second.of(name).others("connections") == 1


def test_full_table_counts_no_further_names_and_harms_no_others():
    first, second = processes(2)
    counts = [first.of(f"user:{number}") for number in range(ROWS + PROBES_MAX)]
    for each in counts:
        each.add("connections", 1)
    found = [
        second.of(f"user:{number}").others("connections")
        for number in range(len(counts))
    ]
    assert set(found) == {0, 1}
    # With a load of one, only a few find no row in their places.
    assert ROWS - 32 <= sum(found) <= ROWS
    for each in counts:
        each.add("connections", -1)
    assert second.of("user:0").others("connections") == 0


def test_one_process_has_no_others():
    count = ONE_PROCESS.of("/shop")
    count.add("connections", 3)
    count.put("sessions", 3)
    assert count.others("connections") == count.news("sessions") == 0
    count.release()


def test_only_the_secret_of_the_processes_is_a_proof():
    first, _ = processes(2)
    assert first.is_proof(b"secret")
    assert not first.is_proof(b"1")
    assert not first.is_proof(b"")
    assert not ONE_PROCESS.is_proof(ONE_PROCESS.proof.encode())
