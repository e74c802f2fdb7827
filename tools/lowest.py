"""
Run the fast tests with the oldest versions that the packages allow.

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
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
Chosen = tuple[str, ...]
CLIENT = ("pydanube", "fast", "schemas", "protoc", "objects", "redis")
BROKER = (
    CLIENT,
    ("pydanube-broker", "etcd"),
    ("pydanube-cli",),
    ("pydanube-kafka",),
    ("pydanube-mqtt",),
    ("pydanube-zookeeper",),
)
"""Distributions, each with its extras."""
PROGRAMS = (
    (*CLIENT, "otel"),
    ("pydanube-broker",),
    ("pydanube-cli",),
    ("pydanube-spark",),
    (
        "pydanube-connect",
        "all",
        "aws",
        "kafka",
        "mqtt",
        "mysql-cdc",
        "nats",
        "otlp",
        "postgres-cdc",
        "rabbitmq",
        "redis",
        "sql",
        "qdrant",
    ),
    ("pydanube-console", "mcp"),
)
IMPORTED = ("pydanube-spark", "pydanube-connect", "pydanube-zookeeper")
"""Distributions that tests import in both environments, without what they need."""
TOOLS = (
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "httpx",
    "moto",
    "aiosmtpd",
    "mqtt5",
    "psutil",
    "numpy",
)
PACKAGES_OF_PROGRAMS = ("connect", "console")
FILES_OF_PROGRAMS = (
    "packages/pydanube-cli/tests/test_main.py",
    "packages/pydanube/tests/test_otel.py",
    "packages/pydanube-broker/tests/servers/settings/test_tracing.py",
)
# They need Spark, or what else the demo and the benchmarks need.
LEFT_OUT = (
    "packages/pydanube-spark",
    "tests/bench",
    "tests/demo",
    "tests/tidy",
    "tests/docs",
    "tests/e2e",
    "tests/conformance/test_connectors.py",
    "tests/conformance/test_lake_table.py",
    "tests/conformance/test_lake_table_merge.py",
    "packages/pydanube-cli/tests/bench",
    "packages/pydanube/tests/wire/files/test_iceberg_metadata.py",
    "packages/pydanube-broker/tests/broker/serving/test_findings.py",
    "tests/properties/test_avro_values.py",
    "tests/scale/test_scan_planning.py",
    # They need the listener of Kafka.
    "packages/pydanube-console/tests/test_access.py",
    "packages/pydanube-console/tests/test_audit_log.py",
)
TESTS_LEFT_OUT = (
    # They need every extra, and Spark.
    "packages/pydanube/tests/model/test_extras.py::test_require_passes_if_the_packages_are_installed",
    "packages/pydanube-connect/tests/test_definitions.py::test_what_cannot_be_stored_is_refused[change5-runs with Spark]",  # noqa: E501
    # Channels of gRPC 1.76 do not end their streams when they are closed.
    "packages/pydanube-broker/tests/servers/grpc/test_connection.py::test_stream_ends_when_its_client_disconnects",
)


def main() -> int:
    """Install and test both environments; return an exit code."""
    programs = [f"packages/pydanube-{each}" for each in PACKAGES_OF_PROGRAMS]
    ignored = [_ignored(path) for path in (*programs, *FILES_OF_PROGRAMS)]
    results = [
        _test("broker", BROKER, ignored),
        _test("programs", PROGRAMS, [*programs, *FILES_OF_PROGRAMS]),
    ]
    return int(any(results))


def _test(name: str, chosen: Sequence[Chosen], arguments: Sequence[str]) -> int:
    python = _install(name, chosen)
    markers = "not slow and not e2e and not soak"
    # Old releases of Starlette use a name that AnyIO has moved.
    warnings = ["-W", "ignore:The anyio:DeprecationWarning"]
    workers = ["-n", "2", "--dist", "loadfile"]
    tests = [python, "-m", "pytest", "-q", *workers, "-m", markers, *warnings]
    tests += [_ignored(path) for path in LEFT_OUT]
    tests += [f"--deselect={each}" for each in TESTS_LEFT_OUT]
    tests += arguments
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


def _ignored(path: str) -> str:
    """Return the option that ignores *path*, also if it contains paths to test."""
    return f"--ignore={path}" if path.endswith(".py") else f"--ignore-glob={path}/*"


def _install(name: str, chosen: Sequence[Chosen]) -> str:
    """Create the environment *name*, and return its Python."""
    listed = [text for each in chosen for text in _listed(*each)]
    wanted = [each for each in map(Requirement, listed) if "pydanube" not in each.name]
    tools = [
        Requirement(line)
        for path in ROOT.glob("requirements-*.txt")
        for line in path.read_text().splitlines()
        if line and not line.startswith(("#", "-"))
    ]
    wanted += [each for each in tools if each.name in TOOLS]
    directory = ROOT / ".venv-lowest" / name
    venv.create(directory, clear=True)
    python = str(directory / "bin" / "python")
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet"]
    install += ["--python", python]
    # Direct ones: of what they bring, the newest versions are installed.
    lowest = ["--resolution", "lowest-direct", *map(str, wanted)]
    subprocess.run([*install, *lowest], check=True)
    names = dict.fromkeys((*(each[0] for each in chosen), *IMPORTED))
    ours = [f"--editable={ROOT / 'packages' / each}" for each in names]
    subprocess.run([*install, "--no-deps", *ours], check=True)
    _print_raised(name, wanted, python)
    return python


def _listed(name: str, *extras: str) -> Iterator[str]:
    """Yield what a distribution and its *extras* need."""
    path = ROOT / "packages" / name / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    yield from project["dependencies"]
    for extra in extras:
        yield from project["optional-dependencies"][extra]


def _print_raised(name: str, wanted: Iterable[Requirement], python: str) -> None:
    """Print which packages could not be installed in their oldest version."""
    [packages] = Path(python).parent.parent.glob("lib/python*/site-packages")
    installed = {
        canonicalize_name(each.metadata["Name"]): each.version
        for each in distributions(path=[str(packages)])
    }
    print(f"Testing {name} with {len(installed)} packages")
    for each in dict.fromkeys(wanted):
        bounds = [one.version for one in each.specifier if one.operator in {">=", "=="}]
        if not bounds:
            raise SystemExit(f"{each} has no lower bound, so none can be tested")
        bound = bounds[0]
        version = installed.get(canonicalize_name(each.name), bound)
        if Version(version) != Version(bound):
            print(f"  {each.name} {version}: {bound} does not fit the others")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
