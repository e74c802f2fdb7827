"""The option that rewrites the golden scenarios."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the current answers into the scenarios; then read the diff",
    )


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    # The option exists only if this directory is named on the command line.
    return bool(request.config.getoption("--rewrite", default=False))
