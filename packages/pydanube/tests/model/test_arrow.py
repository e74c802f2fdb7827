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


WITHOUT = """
import sys
sys.modules["pyarrow"] = sys.modules["uvloop"] = None
import pydanube.sync
for name in pydanube.__all__:
    getattr(pydanube, name)
from pydanube.model.arrow import envelope, is_arrow, is_installed, load, pa
load()
print(is_installed(), is_arrow([]))
for lazy, name in (pa, "table"), (envelope, "FIELDS"):
    try:
        getattr(lazy, name)
    except ImportError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_client_is_imported_where_there_is_no_arrow():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True
    )
    expected = (
        "MissingExtra Arrow data needs pyarrow, which is not installed: "
        "pip install 'pydanube[fast]'"
    )
    assert done.stdout.splitlines() == ["False False", expected, expected]


FIRST_USE = """
import sys
before = set(sys.modules)
import pydanube
pydanube.Client
ours = {name for name in set(sys.modules) - before if name.startswith("pydanube.")}
print(len(sys.modules), len(ours), {"pyarrow", "uvloop", "numpy"} & set(sys.modules))
"""


@pytest.mark.slow
def test_first_use_of_the_client_imports_few_modules():
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE], check=True, capture_output=True, text=True
    )
    every, ours, heavy = done.stdout.split(maxsplit=2)
    assert int(every) <= 420
    assert int(ours) <= 140
    assert heavy == "set()\n"


def test_lazy_module_becomes_the_module():
    lazy = LazyModule("json.tool")
    assert "main" not in vars(lazy)
    assert lazy.main is sys.modules["json.tool"].main
    assert type(lazy) is type(sys)
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        lazy.missing  # noqa: B018


def test_looking_at_a_lazy_module_does_not_import_it():
    assert not hasattr(LazyModule("pydanube.no_such_module"), "__file__")
