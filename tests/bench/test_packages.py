"""Tests of the search for installed packages."""

from bench.packages import find_package, find_program, missing_of, versions_of


def test_installed_packages_are_found():
    assert missing_of(programs=("sh",), debian="dash", packages=("numpy",)) is None
    assert find_program("sh")
    assert versions_of("numpy") == f"numpy {find_package('numpy')}"


def test_missing_server_names_its_package():
    missing = missing_of(programs=("no-such-server",), debian="some-server")

    assert missing == "the server is not installed: apt-get install some-server"


def test_missing_client_is_reported():
    missing = missing_of(
        programs=("no-such-server",), debian="some-server", packages=("no-such-client",)
    )

    assert missing.endswith("its client is not installed: make bench installs it")
