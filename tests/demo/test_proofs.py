"""Tests of the proofs of the demo."""

import pyarrow as pa
import pytest

from examples.demo.inputs import SourceFile, fingerprint
from examples.demo.proofs import (
    prove_lines,
    prove_telemetry,
    prove_topic,
)
from examples.demo.publishing import Ledger

LINES = {"a.py": [b"x", b"yy", b""], "b.py": [b"z"]}


def ledger():
    found, at = Ledger(), 0
    for name, lines in LINES.items():
        offsets = range(at, at + len(lines))
        found.published += len(lines)
        found.fingerprints[name] = found.record(lines, offsets)
        at += len(lines)
    return found


def row(file, base, lines):
    return {
        "file": file,
        "lines": len(lines),
        "bytes": sum(map(len, lines)),
        "fingerprint": fingerprint(lines, range(base, base + len(lines))),
        "offsets": len(lines),
        "first_offset": base,
        "last_offset": base + len(lines) - 1,
    }


def rows():
    """The first file came in two micro-batches."""
    a, b = LINES.values()
    return [row("a.py", 0, a[:2]), row("a.py", 2, a[2:]), row("b.py", 3, b)]


def lines_hold(found):
    on_disk = [SourceFile(name, tuple(lines)) for name, lines in LINES.items()]
    claims = prove_lines("lines", ledger(), pa.Table.from_pylist(found), on_disk)
    return all(claim.holds for claim in claims)


def test_complete_table_passes():
    assert lines_hold(rows())


@pytest.mark.parametrize(
    "wrong",
    [
        rows()[:-1],
        [*rows(), rows()[0]],
        [rows()[0], rows()[1] | {"fingerprint": 1}, rows()[2]],
        [rows()[0], rows()[1] | {"bytes": 9}, rows()[2]],
        [rows()[0], rows()[1], rows()[2] | {"file": "c.py"}],
        [rows()[0] | {"offsets": 1}, *rows()[1:]],
        [rows()[0] | {"last_offset": 2}, *rows()[1:]],
    ],
    ids=[
        "lost",
        "doubled",
        "changed",
        "shorter",
        "elsewhere",
        "repeated",
        "overlapping",
    ],
)
def test_defective_table_fails(wrong):
    assert not lines_hold(wrong)


def topic_holds(ranges, entered=None, lag=0):
    claims = prove_topic("lines", entered or ledger(), ranges, lag)
    return all(claim.holds for claim in claims)


def test_reading_back_needs_every_offset_once():
    assert topic_holds([(0, 2), (2, 4)])
    assert not topic_holds([(0, 3)])
    assert not topic_holds([(0, 3), (2, 4)])
    assert not topic_holds([(0, 2), (3, 5)])
    assert not topic_holds([])


def test_missing_or_unordered_receipt_fails():
    missing = ledger()
    missing.published += 1
    assert not topic_holds([(0, 4)], missing)
    swapped = Ledger(published=2)
    swapped.record([b"a", b"b"], [1, 0])
    assert not topic_holds([(0, 2)], swapped)


def test_windows_must_be_complete_and_unchanged():
    def holds(windows):
        claims = prove_telemetry("t", ledger(), pa.Table.from_pylist(windows))
        return all(claim.holds for claim in claims)

    total = ledger().fingerprint
    good = [
        {"messages": 3, "fingerprint": total - 5},
        {"messages": 1, "fingerprint": 5},
    ]
    assert holds(good)
    assert not holds(good[:1])
    assert not holds([good[0], good[1] | {"fingerprint": 6}])


def test_lag_must_be_known_and_zero():
    assert topic_holds([(0, 4)])
    assert not topic_holds([(0, 4)], lag=3)
    assert not topic_holds([(0, 4)], lag=None)
