"""
Run the fast tests with the oldest versions that pyproject.toml allows.

Creates two environments in .venv-lowest: one with what the client, the command line and
the broker need, and one with what connectors, the console and traces need as well.  In
each, every lower bound of its extras is the version to install, or the next one that
the other packages accept.  Spark and the demo bring versions of their own; the ordinary
tests cover them.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
BROKER = ("schemas", "protoc", "cli", "broker")
STORES = ("objects", "redis", "etcd", "zookeeper")
PROGRAMS = (
    *("connect", "kafka", "mqtt", "mysql-cdc", "nats", "postgres-cdc", "rabbitmq"),
    *("redis", "objects", "sql", "qdrant"),
    *("console", "mcp", "otel"),
)
TOOLS = (
    *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "httpx", "moto"),
    *("aiosmtpd", "mqtt5", "psutil", "numpy"),
)
# They need Spark, or what else the demo and the benchmarks need.
UNITS_LEFT_OUT = ("reader", "spark", "tables", "sinks", "demo", "bench")
# The second environment has what they need.
UNITS_OF_PROGRAMS = ("administration", "connectors", "console")
FILES_OF_PROGRAMS = (
    *("tests/unit/cli/test_connector_endpoint.py", "tests/unit/cli/test_main.py"),
    *("tests/unit/servers/test_tracing.py", "tests/unit/test_otel.py"),
)
LEFT_OUT = (
    *(f"tests/unit/{each}" for each in UNITS_LEFT_OUT),
    *("tests/tidy", "tests/docs", "tests/e2e", "tests/conformance/test_lake_table.py"),
    "tests/conformance/test_lake_table_merge.py",
    "tests/unit/wire/files/test_iceberg_metadata.py",
)
TESTS_LEFT_OUT = (
    # They need every extra, and Spark.
    "model/test_extras.py::test_require_passes_if_the_packages_are_installed",
    "cli/commands/test_pipeline.py::test_brokers_are_asked_before_spark_starts",
    # Channels of gRPC 1.76 do not end their streams when they are closed.
    "servers/grpc/test_connection.py::test_stream_ends_when_its_client_disconnects",
)


def main() -> int:
    """Install and test both environments; return an exit code."""
    left_out = [
        *LEFT_OUT,
        *(f"tests/unit/{each}" for each in UNITS_OF_PROGRAMS),
        *FILES_OF_PROGRAMS,
    ]
    ignored = [f"--ignore={path}" for path in left_out]
    ignored += [f"--deselect=tests/unit/{each}" for each in TESTS_LEFT_OUT]
    programs = [f"tests/unit/{each}" for each in UNITS_OF_PROGRAMS]
    results = [
        _test("broker", (*BROKER, *STORES), ignored),
        _test("programs", (*BROKER, *PROGRAMS), [*programs, *FILES_OF_PROGRAMS]),
    ]
    return int(any(results))


def _test(name: str, extras: Sequence[str], arguments: Sequence[str]) -> int:
    python = _install(name, extras)
    markers = "not slow and not e2e and not soak"
    # Old releases of Starlette use a name that AnyIO has moved.
    warnings = ["-W", "ignore:The anyio:DeprecationWarning"]
    tests = [python, "-m", "pytest", "-q", "-m", markers, *warnings, *arguments]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


def _install(name: str, extras: Iterable[str]) -> str:
    """Create the environment *name*, and return its Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    listed = [*project["dependencies"], *(each for e in extras for each in optional[e])]
    wanted = [each for each in map(Requirement, listed) if each.name != "pydanube"]
    tools = [*map(Requirement, optional["dev"] + optional["demo"])]
    wanted += [each for each in tools if each.name in TOOLS]
    directory = ROOT / ".venv-lowest" / name
    venv.create(directory, clear=True)
    python = str(directory / "bin" / "python")
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet"]
    install += ["--python", python]
    # Direct ones: of what they bring, the newest versions are installed.
    lowest = ["--resolution", "lowest-direct", *map(str, wanted)]
    subprocess.run([*install, *lowest], check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    _print_raised(name, wanted, python)
    return python


def _print_raised(name: str, wanted: Iterable[Requirement], python: str) -> None:
    """Print which packages could not be installed in their oldest version."""
    [packages] = Path(python).parent.parent.glob("lib/python*/site-packages")
    installed = {
        canonicalize_name(each.metadata["Name"]): each.version
        for each in distributions(path=[str(packages)])
    }
    print(f"Testing {name} with {len(installed)} packages")
    for each in dict.fromkeys(wanted):
        [bound] = [
            one.version for one in each.specifier if one.operator in {">=", "=="}
        ]
        version = installed.get(canonicalize_name(each.name), bound)
        if Version(version) != Version(bound):
            print(f"  {each.name} {version}: {bound} does not fit the others")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
