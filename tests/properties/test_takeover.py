"""
The protocol of clusters keeps its promises in every interleaving.

The model ``takeover_model`` explores takeovers and moves of a shard, with the
real machine of a session.  Each rule of the protocol is left out once, and then the
model must find a broken promise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.models.takeover_exploration import explore
from support.models.takeover_rules import RULES, Bounds, Rules

TAKEOVERS = Bounds(messages=1, in_flight=1)
MOVES = Bounds(sessions=2, moves=1)
CANCELLED_MOVES = Bounds(sessions=2, messages=1, in_flight=1, moves=1, cancels=1)
LATE_CHANGES = Bounds(sessions=2, messages=1, in_flight=1, moves=1, late_changes=1)
SEALING = Bounds(sessions=2, in_flight=1, seals=2)
PREPARED_MOVES = Bounds(sessions=2, messages=1, in_flight=1, seals=1, moves=1)
REMOVALS = Bounds(
    sessions=2, messages=1, in_flight=1, moves=2, claims=3, removes_journals=True
)
LATE_ANSWERS = Bounds(sessions=2, learns_late=True)
READERS = Bounds(sessions=2, in_flight=1, moves=1, reads=True)
LOCKS = Bounds(messages=1, in_flight=1, locks=True)
MOVES_WITH_LOCKS = Bounds(sessions=2, messages=1, in_flight=1, moves=1, locks=True)

BOUNDS = {
    "takeovers": TAKEOVERS,
    "moves": MOVES,
    "cancelled moves": CANCELLED_MOVES,
    "late changes": LATE_CHANGES,
    "sealing": SEALING,
    "late answers": LATE_ANSWERS,
    "readers": READERS,
    "locks": LOCKS,
    "moves with locks": MOVES_WITH_LOCKS,
}

LARGER = {
    "prepared moves, few messages": PREPARED_MOVES,
    "removals, two sessions": REMOVALS,
    "takeovers": Bounds(),
    "moves": Bounds(messages=1, in_flight=1, moves=1),
    "late changes": Bounds(sessions=2, in_flight=1, moves=1, cancels=1, late_changes=1),
    "prepared moves": Bounds(sessions=2, in_flight=1, seals=1, moves=1),
    "removals": Bounds(messages=1, in_flight=1, moves=1, removes_journals=True),
    "late answers": Bounds(sessions=2, moves=1, learns_late=True),
}

FOUND_IN = {
    "claim_compares_revision": (TAKEOVERS, "lost"),
    "claim_compares_absence": (READERS, "offsets go back"),
    "claim_compares_own_presence": (REMOVALS, "lost"),
    "claim_freezes_journal": (SEALING, "lost"),
    "fence_before_read": (TAKEOVERS, "lost"),
    "read_only_after_the_lock_is_held": (LOCKS, "lost"),
    "read_again_if_groups_were_removed": (PREPARED_MOVES, "duplicated"),
    "read_manifest_after_claim": (SEALING, "lost"),
    "read_only_source_epoch": (MOVES, "lost"),
    "adopt_producers": (TAKEOVERS, "duplicated"),
    "open_after_adoption_is_committed": (TAKEOVERS, "lost"),
    "serve_only_after_open": (TAKEOVERS, "lost"),
    "open_compares_revision": (TAKEOVERS, "lost"),
    "manifest_compares_epoch": (SEALING, "lost"),
    "contiguous_commit": (LATE_ANSWERS, "lost"),
    "release_after_left_is_committed": (MOVES, "lost"),
    "release_compares_revision": (LATE_CHANGES, "lost"),
    "no_way_back_after_left": (CANCELLED_MOVES, "lost"),
    "keep_journals_that_shards_name": (REMOVALS, "lost"),
    "read_shards_after_absence": (REMOVALS, "lost"),
    "keep_fences": (REMOVALS, "lost"),
    "refuse_only_behind_the_fence": (LATE_ANSWERS, "refused and served"),
    "stop_when_own_clock_says_so": (READERS, "offsets go back"),
}
"""Where the model finds a broken promise without a rule, and which one first."""


def check_all(bounds: Bounds) -> None:
    found = explore(Rules(), bounds)
    assert found.violation is None, str(found.violation)
    epochs = {epoch for _, epoch in found.served}
    # The model is not stuck: a session opens the shard after each claim.
    claims = bounds.claims if bounds.moves else bounds.sessions - 1
    assert epochs == set(range(1, 2 + claims))


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_every_interleaving_keeps_the_promises(name: str) -> None:
    check_all(BOUNDS[name])


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LARGER)
def test_every_interleaving_of_larger_models_keeps_the_promises(name: str) -> None:
    check_all(LARGER[name])


IN_SOAK = {
    "claim_compares_own_presence",
    "read_again_if_groups_were_removed",
    "read_shards_after_absence",
    "release_compares_revision",
}
"""The rules whose models are so large that they are left out in the long tests only."""


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, marks=[pytest.mark.soak] if rule in IN_SOAK else [])
        for rule in RULES
    ],
)
def test_model_finds_a_broken_promise_if_a_rule_is_left_out(rule: str) -> None:
    bounds, promise = FOUND_IN[rule]
    violation = explore(Rules(**{rule: False}), bounds).violation
    assert violation is not None, f"the model does not need {rule} in {bounds}"
    assert violation.message.startswith(promise), str(violation)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(TAKEOVERS, id="takeovers"),
        pytest.param(replace(MOVES, in_flight=1), id="moves"),
        pytest.param(replace(SEALING, seals=1), id="sealing", marks=pytest.mark.soak),
    ],
)
def test_messages_do_not_depend_on_leases(bounds: Bounds) -> None:
    rules = Rules(claim_compares_absence=False, stop_when_own_clock_says_so=False)
    found = explore(rules, bounds)
    assert found.violation is None, str(found.violation)


@pytest.mark.slow
def test_reading_before_the_lock_is_held_loses_messages() -> None:
    violation = explore(Rules(fence_before_read=False), LOCKS).violation
    assert violation is not None
    assert violation.message.startswith("lost"), str(violation)
