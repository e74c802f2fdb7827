"""Tests of the SQL of a merge into a Delta table."""

from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.pure import delta_merge


def test_keys_are_compared_and_quoted():
    columns = UpsertColumns(keys=("id", 'a"b'))
    assert delta_merge.matches(columns) == 't."id" = s."id" AND t."a""b" = s."a""b"'


def test_without_order_every_change_is_current():
    assert delta_merge.is_current(()) == "true"


def test_order_columns_are_compared_in_turn_and_null_is_least():
    last = '(s."b" > t."b" OR (t."b" IS NULL AND s."b" IS NOT NULL) OR {})'.format(
        '((s."b" IS NOT DISTINCT FROM t."b") AND true)'
    )
    assert delta_merge.is_current(("a", "b")) == (
        '(s."a" > t."a" OR (t."a" IS NULL AND s."a" IS NOT NULL) OR '
        f'((s."a" IS NOT DISTINCT FROM t."a") AND {last}))'
    )


def test_deletions_are_changes_with_a_true_column():
    assert delta_merge.is_deletion(UpsertColumns(keys=("id",))) == "false"
    columns = UpsertColumns(keys=("id",), delete="gone")
    assert delta_merge.is_deletion(columns) == 's."gone" IS TRUE'


def test_columns_are_assigned_by_name():
    assert delta_merge.assignments(["id", "n"]) == {
        't."id"': 's."id"',
        't."n"': 's."n"',
    }
