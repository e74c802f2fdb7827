"""The search finds topics, subscriptions, schemas and pages by their names."""

from pydanube_console.search import RESULTS_MAX, best, candidates


def found(word):
    everything = candidates(
        ["/shop/orders-part-0", "/shop/orders-part-1", "/default/reorders"],
        [("orders-report", "/shop/orders")],
        ["orders"],
    )
    return [(each.text, each.kind, each.href) for each in best(everything, word)]


def test_names_that_begin_with_the_word_come_first():
    assert found("orders") == [
        ("orders", "schema", "/schema?subject=orders"),
        (
            "orders-report",
            "subscription of /shop/orders",
            "/topic?name=/shop/orders&tab=subscriptions",
        ),
        ("/shop/orders", "topic", "/topic?name=/shop/orders"),
        ("/default/reorders", "topic", "/topic?name=/default/reorders"),
    ]
    assert found("audit") == [("Audit log", "page", "/audit")]
    assert found("nothing") == []


def test_results_are_bounded():
    names = [f"/a/topic-{number}" for number in range(100)]
    assert len(best(candidates(names, [], []), "topic")) == RESULTS_MAX
