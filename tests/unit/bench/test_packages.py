"""What is not installed is named, with how to get it."""

from bench.packages import find_package, find_program, missing_of, versions_of


def test_what_is_there_is_not_missed():
    assert missing_of(programs=("sh",), debian="dash", packages=("numpy",)) is None
    assert find_program("sh")
    assert versions_of("numpy") == f"numpy {find_package('numpy')}"


def test_a_server_that_is_missing_is_named_by_its_package():
    missing = missing_of(programs=("no-such-server",), debian="some-server")

    assert missing == "the server is not installed: apt-get install some-server"


def test_a_client_that_is_missing_is_told_of_too():
    missing = missing_of(
        programs=("no-such-server",), debian="some-server", packages=("no-such-client",)
    )

    assert missing.endswith("its client is not installed: make bench installs it")
