"""The rules and the bounds of the model of takeovers."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Bounds:
    """How much happens at most."""

    sessions: int = 3
    messages: int = 2
    in_flight: int = 2
    claims: int = 2
    moves: int = 0
    cancels: int = 0
    seals: int = 0
    late_changes: int = 0
    """The number of transactions whose outcome the sender does not learn."""
    removes_journals: bool = False
    learns_late: bool = False
    """Whether a session learns the outcome of a put later than it happens."""
    reads: bool = False
    """Whether the ends that readers see are compared."""
    locks: bool = False
    """
    Whether the fence is a lock that ends with its process, as on one machine.

    Nothing is put into such a journal but by its session, so that a reader who does
    not wait for the lock stops nobody.
    """


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol; the model can leave out any of them."""

    claim_compares_revision: bool = True
    claim_compares_absence: bool = True
    claim_compares_own_presence: bool = True
    claim_freezes_journal: bool = True
    fence_before_read: bool = True
    read_only_after_the_lock_is_held: bool = True
    read_again_if_groups_were_removed: bool = True
    read_manifest_after_claim: bool = True
    read_only_source_epoch: bool = True
    adopt_producers: bool = True
    open_after_adoption_is_committed: bool = True
    serve_only_after_open: bool = True
    open_compares_revision: bool = True
    manifest_compares_epoch: bool = True
    contiguous_commit: bool = True
    release_after_left_is_committed: bool = True
    release_compares_revision: bool = True
    no_way_back_after_left: bool = True
    keep_journals_that_shards_name: bool = True
    read_shards_after_absence: bool = True
    keep_fences: bool = True
    refuse_only_behind_the_fence: bool = True
    stop_when_own_clock_says_so: bool = True


RULES = [field.name for field in fields(Rules)]
