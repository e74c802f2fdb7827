"""
Run the tests that failed last again, alone, to learn which of them are unsteady.

A busy machine disturbs one test in many thousands.  Up to three tests that failed must
each hold three times, one after the other: those that do are unsteady, and are named.
They are faults of a test or of the product, to be mended before anything else.  The
exit code is 1 if one fails again, or if more than three failed.

    python tools/again.py ARGUMENTS OF PYTEST
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_MAX = 3
TURNS = 3


def main(arguments: Sequence[str]) -> int:
    """Run the failed tests again, and return the exit code."""
    failed = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if (
        not failed
        or len(failed) > TESTS_MAX
        or not all("::" in each for each in failed)
    ):
        return 1
    alone = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    for turn in range(1, TURNS + 1):
        print(f"Run again, turn {turn} of {TURNS}: {', '.join(failed)}", flush=True)
        if subprocess.run([*alone, *arguments, *failed], check=False).returncode:
            return 1
    print(f"UNSTEADY, to be mended first: {', '.join(failed)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
