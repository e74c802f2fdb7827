"""The option that lets a changed program write its own golden scenarios."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the program answers into the scenarios; then read the diff",
    )


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    # Given only when this directory is named on the command line.
    return bool(request.config.getoption("--rewrite", default=False))
