import sys
from types import ModuleType

import pytest

from pydanube.model.lazy_exports import lazy_exports


@pytest.fixture
def package(monkeypatch):
    package = ModuleType("exporting")
    package.__getattr__ = lazy_exports("exporting", {"Fraction": "fractions"})
    monkeypatch.setitem(sys.modules, "exporting", package)
    return package


def test_export_is_imported_once_when_it_is_used(package):
    assert "Fraction" not in vars(package)
    assert package.Fraction is sys.modules["fractions"].Fraction
    assert "Fraction" in vars(package)


def test_error_for_an_unknown_export_names_the_package(package):
    with pytest.raises(AttributeError, match="'exporting' has no attribute 'Decimal'"):
        package.Decimal  # noqa: B018
