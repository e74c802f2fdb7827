"""Properties of resource patterns and of the access policy."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidName, PermissionDenied
from pydanube.security.permissions import Permission
from pydanube.security.policy import AccessPolicy, Binding, Role
from pydanube.security.principals import Principal
from pydanube.security.resources import CLUSTER, Resource, ResourcePattern

# Few letters, so that patterns match and cover each other often.
WORDS = st.sampled_from(["a", "b", "ab", "ba", "system", "a-part-0", "ab-part-1"])
WILD = st.one_of(WORDS, st.text("ab*?", min_size=1, max_size=4), st.just("a-part-*"))
RESOURCES = st.one_of(
    st.just("cluster"),
    WORDS.map(lambda word: f"/{word}"),
    st.tuples(WORDS, WORDS).map(lambda parts: f"/{parts[0]}/{parts[1]}"),
    WORDS.map(lambda word: f"subject:{word}"),
).map(Resource.parse)
PATTERNS = st.one_of(
    st.sampled_from(["*", "cluster"]),
    WILD.map(lambda word: f"/{word}"),
    st.tuples(WILD, WILD).map(lambda parts: f"/{parts[0]}/{parts[1]}"),
    WILD.map(lambda word: f"subject:{word}"),
)
PERMISSIONS = st.frozensets(st.sampled_from(Permission), min_size=1)
ROLES = st.builds(
    Role,
    st.sampled_from(["r1", "r2", "r3"]),
    PERMISSIONS,
    st.lists(PATTERNS, min_size=1, max_size=2).map(tuple),
)
BINDINGS = st.builds(
    Binding,
    st.sampled_from(["user:bob", "user:eve", "group:g"]),
    st.lists(st.sampled_from(["r1", "r2", "r3"]), min_size=1, max_size=2).map(tuple),
    st.lists(PATTERNS, min_size=1, max_size=2).map(tuple),
)
POLICIES = st.builds(
    lambda roles, bindings: AccessPolicy(
        {each.name: each for each in roles}, {each.id: each for each in bindings}
    ),
    st.lists(ROLES, max_size=3),
    st.lists(BINDINGS, max_size=4),
)
BOB = Principal("bob", "token", ("g",))
EVE = Principal("eve", "token")


@given(PATTERNS, PATTERNS, RESOURCES)
def test_what_matches_a_pattern_also_matches_those_that_cover_it(
    wide, narrow, resource
):
    wide, narrow = ResourcePattern(wide), ResourcePattern(narrow)
    if wide.covers(narrow):
        assert wide.matches(resource) >= narrow.matches(resource)


@given(PATTERNS)
def test_pattern_covers_itself_and_is_covered_by_everything(text):
    pattern = ResourcePattern(text)
    assert pattern.covers(pattern)
    assert ResourcePattern("*").covers(pattern)


@given(RESOURCES)
def test_name_of_a_resource_is_a_pattern_that_matches_it(resource):
    assert ResourcePattern(str(resource)).matches(resource)


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(text):
    with suppress(InvalidName):
        ResourcePattern(text).matches(CLUSTER)


@given(POLICIES, BINDINGS, RESOURCES, st.sampled_from(Permission))
def test_binding_that_is_accepted_gives_no_more_than_the_granter_has(
    policy, binding, resource, permission
):
    try:
        policy.check_may_bind(BOB, binding)
    except PermissionDenied:
        return
    after = AccessPolicy(policy.roles, {**policy.bindings, binding.id: binding})
    held = policy.decide(BOB, permission, resource).allowed
    for principal in (BOB, EVE):
        had = policy.decide(principal, permission, resource).allowed
        has = after.decide(principal, permission, resource).allowed
        assert has <= (had or held)


@given(POLICIES, ROLES, RESOURCES, st.sampled_from(Permission))
def test_role_that_is_accepted_gives_no_more_than_its_author_has(
    policy, role, resource, permission
):
    try:
        policy.check_may_define(BOB, role)
    except PermissionDenied:
        return
    after = AccessPolicy({**policy.roles, role.name: role}, policy.bindings)
    held = policy.decide(BOB, permission, resource).allowed
    for principal in (BOB, EVE):
        had = policy.decide(principal, permission, resource).allowed
        has = after.decide(principal, permission, resource).allowed
        assert has <= (had or held)
