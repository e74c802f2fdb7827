"""The list of topics is filtered, sorted and cut into pages."""

from pydanube.model.activity import Activity
from pydanube_console.pure.topic_rows import PAGE_ROWS, page_of, rows_of


def activity(topic, lag):
    return Activity(
        topic=topic,
        published_per_s=0.0,
        delivered_per_s=0.0,
        lag=lag,
        producers=0,
        consumers=0,
        byte_count=0,
    )


def test_partitions_are_one_row():
    [row] = rows_of(["/a/t-part-0", "/a/t-part-1"], [activity("/a/t", 3)])
    assert (row.name, row.partitions, row.activity.lag) == ("/a/t", 2, 3)


def test_ten_thousand_topics_have_pages():
    rows = rows_of([f"/a/t{number:05}" for number in range(10_000)], [])
    found = page_of(rows, text="", order="Name", number=2)
    assert (found.count, found.page_count) == (10_000, 200)
    assert found.rows[0].name == f"/a/t{PAGE_ROWS:05}"
    last = page_of(rows, text="T0999", order="Name", number=99)
    assert (last.count, last.page_count, len(last.rows)) == (10, 1, 10)


def test_topics_that_are_not_measured_come_last():
    rows = rows_of(["/a/x", "/a/y", "/a/z"], [activity("/a/y", 1), activity("/a/z", 9)])
    found = page_of(rows, text="", order="Lag", number=1)
    assert [each.name for each in found.rows] == ["/a/z", "/a/y", "/a/x"]
