"""Arrow is imported when it is first used, and is the real module from then on."""

import subprocess
import sys

import pytest

from pydanube.model.arrow import LazyModule

PROGRAM = """
import sys
import pydanube.sync
from pydanube.model.arrow import load, pa, pc
print("pyarrow" in sys.modules, "pyarrow.compute" in sys.modules)
load()
import pyarrow
print(pa.Table is pyarrow.Table, pc.equal is sys.modules["pyarrow.compute"].equal)
loaded = set(sys.modules)
pa.array([b"first"], pa.binary())
print(set(sys.modules) == loaded)
"""


@pytest.mark.slow
def test_client_imports_arrow_on_demand():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "False", "True", "True", "True"]


def test_lazy_module_becomes_the_module():
    lazy = LazyModule("json.tool")
    assert "main" not in vars(lazy)
    assert lazy.main is sys.modules["json.tool"].main
    assert type(lazy) is type(sys)
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        lazy.missing  # noqa: B018


def test_looking_at_a_lazy_module_does_not_import_it():
    assert not hasattr(LazyModule("pydanube.no_such_module"), "__file__")
