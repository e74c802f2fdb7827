"""Suggestions for mistyped names."""

from pydanube.model.suggestions import did_you_mean


def test_did_you_mean_names_the_nearest_known_name():
    assert did_you_mean("TOPIK", ["topic", "path"]) == "; did you mean 'topic'?"
    assert did_you_mean("batchrow", ["Batches", "batchRows"]) == (
        "; did you mean 'batchRows'?"
    )


def test_did_you_mean_is_empty_if_nothing_resembles_the_name():
    assert did_you_mean("zebra", ["topic", "path"]) == ""
    assert did_you_mean("", []) == ""
