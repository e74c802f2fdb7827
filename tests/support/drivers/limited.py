"""Scripts in a process whose memory and processor time the kernel limits."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_LIMITS = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, ({cpu_s}, {cpu_s}))
resource.setrlimit(resource.RLIMIT_AS, ({memory_bytes}, {memory_bytes}))
"""


def run_limited(script, *, memory_mib, cpu_s):
    """
    Run *script* in a process of its own; raise if it fails or takes more.

    The limits include what starting the interpreter and importing libraries take,
    about 350 MiB of address space and 2 s on a busy machine.
    """
    limits = _LIMITS.format(cpu_s=cpu_s, memory_bytes=memory_mib * 1024 * 1024)
    done = subprocess.run(
        [sys.executable, "-c", limits + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout
