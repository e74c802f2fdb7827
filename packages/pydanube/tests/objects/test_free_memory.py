"""Freed memory is used again instead of being returned to the system."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc has these limits"
)

# Prints how many pages the second use of the same memory takes.
SCRIPT = """
import resource, sys
from pydanube.objects.free_memory import keep_free_memory

def use():
    blocks = [b"x" * (10 * 1024 * 1024 - 4096) for _ in range(3)]

if sys.argv[1] == "keep":
    keep_free_memory()
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 3 * 10 * 256


def pages_taken(mode, **variables):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC", "GLIBC"))
    }
    command = [sys.executable, "-c", SCRIPT, mode]
    found = subprocess.run(
        command, env=environment | variables, capture_output=True, check=True
    )
    return int(found.stdout)


def test_freed_memory_is_kept():
    assert pages_taken("default") > PAGES // 2
    assert pages_taken("keep") < PAGES // 10


def test_limits_in_the_environment_win():
    assert pages_taken("keep", MALLOC_TRIM_THRESHOLD_="131072") > PAGES // 2
