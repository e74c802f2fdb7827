"""Clients of SCRAM-SHA-256 prove that they know a password, and only that one."""

from __future__ import annotations

from base64 import b64decode

import pytest

from pydanube.model.errors import Unauthenticated
from pydanube.security.scram import (
    ScramChallenge,
    make_verifier,
    parse_start,
    salt_of,
)

# The example of RFC 7677, section 3.
PASSWORD = "pencil"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
LAST = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
END = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def challenge():
    return ScramChallenge(parse_start(FIRST), NONCE, SALT)


def test_the_example_of_the_standard_is_verified():
    assert challenge().start.user == "user"
    assert challenge().message == CHALLENGE
    other = make_verifier("crayon", SALT)
    verifiers = [other, make_verifier(PASSWORD, SALT)]
    assert challenge().verify(LAST, verifiers) == (1, END)


def test_another_password_is_refused():
    for verifiers in ([], [make_verifier("crayon", SALT)]):
        with pytest.raises(Unauthenticated):
            challenge().verify(LAST, verifiers)


@pytest.mark.parametrize(
    "last",
    [
        b"",
        b"\xff",
        LAST[:-3],
        LAST.replace(b"c=biws", b"c=eSws"),
        LAST.replace(b"%hv", b"%hw"),
        LAST.replace(b"p=d", b"p=e"),
        LAST.replace(b"p=d", b"p="),
        LAST * 100,
    ],
)
def test_a_last_message_that_does_not_fit_is_refused(last):
    with pytest.raises(Unauthenticated):
        challenge().verify(last, [make_verifier(PASSWORD, SALT)])


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"n",
        b"p=tls-unique,,n=user,r=1",
        b"n,,r=1",
        b"n,,n=user",
        b"n,,m=1,n=user,r=1",
        b"n,a=admin,n=user,r=1",
        b"n,admin,n=user,r=1",
        b"n,,n=" + b"u" * 600 + b",r=1",
        b"n,,n=user,r=" + b"1" * 5000,
    ],
)
def test_a_first_message_that_does_not_fit_is_refused(first):
    with pytest.raises(Unauthenticated):
        parse_start(first)


def test_all_keys_of_a_name_have_one_salt():
    assert salt_of("a") == salt_of("a") != salt_of("b")


def test_names_of_users_may_have_commas():
    for own in (b"", b"a=a=2Cb=3Dc"):
        assert parse_start(b"n,%s,n=a=2Cb=3Dc,r=1" % own).user == "a,b=c"
