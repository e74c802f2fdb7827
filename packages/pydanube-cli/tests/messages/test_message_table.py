"""Messages as rows: for people, and harmless for their terminals."""

from pydanube_cli.messages.message_table import MessageTable
from support.fakes.batches import messages_of


def test_rows_are_aligned_under_their_headings():
    table = MessageTable(has_topics=False, terminal_width=None)
    first = messages_of(
        [b"one", b"two\a", b"\xff"],
        base=98,
        keys=[b"shop-7", None, b""],
        attributes=[{"a": "1", "b": "2"}, None, None],
    )
    assert b"".join(table(first)).decode().splitlines() == [
        "Offset  Published                 Key     Attributes  Payload",
        "──────  ────────────────────────  ──────  ──────────  ───────",
        "    98  2023-11-14T22:13:20.000Z  shop-7  a=1 b=2     one",
        "    99  2023-11-14T22:13:20.000Z  \u2013       \u2013           two\\x07",
        "   100  2023-11-14T22:13:20.000Z  \u2013       \u2013           \\xff",
    ]
    later = messages_of([b"x"], base=101, keys=[b"a-longer-key"])
    assert b"".join(table(later)).decode() == (
        "   101  2023-11-14T22:13:20.000Z  a-longer-key  \u2013           x\n"
    )


def test_one_long_key_does_not_widen_all_rows():
    table = MessageTable(has_topics=False, terminal_width=None)
    batch = messages_of([b"a", b"b"], base=0, keys=[b"k" * 1000, b"k"])
    *_, long, short = b"".join(table(batch)).decode().splitlines()
    assert "k" * 1000 in long
    assert len(short) < 200


def test_rows_fit_into_the_terminal():
    table = MessageTable(has_topics=True, terminal_width=130)
    batch = messages_of([b"x" * 1000], base=98, keys=[b"k" * 1000])
    _, _, row = b"".join(table(batch)).decode().splitlines()
    assert len(row) == 130
    assert row.startswith("/default/orders  ")
    assert row.count("\u2026") == 2


def test_values_are_shown_instead_of_payloads():
    table = MessageTable(has_topics=False, terminal_width=None)
    batch = messages_of([b"\x02\x04", b"bad"], base=0)
    batch.slices[0][0].decode = lambda payloads: [{"n": len(p)} for p in payloads]
    [first, _] = table(batch)
    assert first.decode().endswith('  {"n":2}\n')
