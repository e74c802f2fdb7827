"""The processor time that a process wants."""

import time

import pytest

from pydanube_broker.storage.processor_time import SCHEDSTAT, wanted_processor_time


def test_time_in_which_a_process_waits_counts_as_used(tmp_path):
    file = tmp_path / "schedstat"
    file.write_text("5000000000 3000000000 17\n")
    before = time.process_time()
    found = wanted_processor_time(file)
    assert before + 3.0 <= found <= time.process_time() + 3.0


@pytest.mark.parametrize("content", [None, "", "1", "nonsense of another system"])
def test_used_time_is_known_everywhere(tmp_path, content):
    file = tmp_path / "schedstat"
    if content is not None:
        file.write_text(content)
    before = time.process_time()
    assert before <= wanted_processor_time(file) <= time.process_time()


@pytest.mark.skipif(not SCHEDSTAT.exists(), reason="this system does not tell")
def test_this_system_tells_how_long_processes_wait():
    ran_ns, waited_ns, _ = map(int, SCHEDSTAT.read_text().split())
    assert ran_ns > 0
    assert waited_ns >= 0
