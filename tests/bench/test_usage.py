"""Tests of what processes use."""

import os
import subprocess
import sys

from bench.usage import ProcessorTimes, processor_s

USED_S = 0.05


def test_what_a_process_has_used_stays_when_it_ends():
    with ProcessorTimes(os.getpid()) as times:
        before = times.total_s()
        spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            while processor_s([spinning.pid]) < USED_S:
                continue
            used = times.total_s()
        finally:
            spinning.kill()
            spinning.wait()
        assert used >= before + USED_S
        assert times.total_s() >= used
