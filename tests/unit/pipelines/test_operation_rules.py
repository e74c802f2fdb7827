"""Tests of the checks of restart, schedule, metrics, lineage and alerts."""

import pytest

pytest.importorskip("cronsim")

from pydanube.declarations.problems import InvalidDeclaration
from pydanube.pipelines.loading import load

BASE = """\
name: p
sources: {a: {topic: /default/a}}
sinks: {out: {input: a, format: noop}}
"""

VALID = [
    "restart: {count: 0, backoff: 1s, backoff_max: 1m, reset_after: 1h}",
    "restart:\n  count: 3",
    "schedule: {cron: '*/5 * * * *', timezone: Europe/Berlin}",
    "metrics: {listen: '127.0.0.1:9400'}",
    "metrics: {listen: '[::1]:0'}",
    "lineage: {url: 'http://marquez:5000', api_key: x}",
    "lineage: {file: lineage.ndjson}",
    "alerts: {url: 'https://hooks.example.com/x'}",
    "alerts: {url: 'http://x', rules: {a: {when: batch_age, above: 10m, for: 1m}}}",
]
INVALID = [
    ("restart: {count: -1}", "restart.count", "0 or more"),
    ("restart: {backoff: soon}", "restart.backoff", "not a duration"),
    ("restart: {delay: 1s}", "restart.delay", "unknown"),
    ("schedule: {timezone: UTC}", "schedule", "'cron' is missing"),
    ("schedule: {cron: daily}", "schedule.cron", "not a cron expression"),
    ("schedule: {cron: '0 3 * * *', timezone: X}", "schedule.timezone", "time zone"),
    (
        "schedule: {cron: '0 3 * * *'}\ntrigger: continuous",
        "trigger",
        "needs the trigger available-now",
    ),
    ("metrics: {listen: localhost}", "metrics.listen", "127.0.0.1:9400"),
    ("metrics: {listen: 'localhost:70000'}", "metrics.listen", "not an address"),
    ("lineage: {namespace: x}", "lineage", "either url or file"),
    ("lineage: {url: marquez}", "lineage.url", "not an http"),
    ("alerts: {url: slack}", "alerts.url", "not an http"),
    *(
        (
            f"alerts: {{url: 'http://x', rules: {{a: {{{rule}}}}}}}",
            f"alerts.rules.a.{at}",
            text,
        )
        for rule, at, text in [
            ("when: lag", "above", "is missing, such as 1000"),
            ("when: lag, above: many", "above", "'many' is not a number"),
            ("when: lag, above: -1", "above", "0 or more"),
            ("when: batch_age, above: soon", "above", "not a duration"),
            ("when: failed, above: 1", "above", "not for failures"),
            ("when: failed, for: soon", "for", "not a duration"),
            ("when: slow", "when", "slow"),
        ]
    ),
    ("lineage: {file: x, api_key: y}", "lineage.api_key", "only with url"),
]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "p.yaml"


@pytest.mark.parametrize("text", VALID)
def test_valid_sections_are_accepted(file, text):
    file.write_text(f"{BASE}{text}\n")
    assert load(file).name == "p"


@pytest.mark.parametrize(("text", "path", "message"), INVALID)
def test_problems_have_their_place(file, text, path, message):
    file.write_text(f"{BASE}{text}\n")
    with pytest.raises(InvalidDeclaration) as caught:
        load(file)
    found = {each.path: each.message for each in caught.value.problems}
    assert path in found
    assert message in found[path]
