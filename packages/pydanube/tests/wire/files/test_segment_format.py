from dataclasses import replace

from pydanube.wire.files.segment_format import (
    ObjectName,
    Run,
    SegmentFooter,
    SegmentIdentity,
    object_name,
    object_prefix,
    parse_object_name,
    read_footer,
    rewritten_name,
)

IDENTITY = SegmentIdentity(topic="/default/a", topic_id=7, epoch=3)


def test_names_sort_by_offset():
    assert object_name("", "/default/a", 5, 17, 3) == (
        "default/a/00000000000000000005-00000000000000000017-3.parquet"
    )
    assert object_prefix("/some/root/", "/default/a") == "some/root/default/a/"


def test_object_name_is_parsed_into_its_parts():
    sealed = object_name("", "/default/a", 5, 17, 3)
    assert parse_object_name(sealed) == ObjectName(5, 17, 3, None)
    run = Run(0xBEE, 1_700_000_000)
    rewritten = rewritten_name("default/a/", 5, 17, 3, run)
    assert rewritten != sealed
    assert rewritten != rewritten_name("default/a/", 5, 17, 3, Run(1, 1_700_000_000))
    assert parse_object_name(rewritten) == ObjectName(5, 17, 3, run)
    assert parse_object_name("default/a/readme.parquet") is None


def test_footer_metadata_is_read_back():
    said = IDENTITY.metadata(5, 17, 4, 99)
    footer = {name.encode(): text.encode() for name, text in said.items()}
    expected = SegmentFooter(topic_id=7, base=5, end=17, count=4, oldest_tombstone=99)
    assert read_footer(footer) == expected
    footer[b"danube.oldest_tombstone"] = b"none"
    assert read_footer(footer) == replace(expected, oldest_tombstone=None)
    assert read_footer({}) is None
    assert read_footer(None) is None
    assert read_footer({**footer, b"danube.topic_id": b"x"}) is None
