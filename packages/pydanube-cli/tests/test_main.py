"""Every command is listed, has help, and is loaded when it is needed."""

import gc
import re
import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from pydanube.model.version import __version__
from pydanube_cli.main import ELSEWHERE, all_commands, app, load
from support.drivers.command_lines import check_line
from support.drivers.commands import environment
from support.project import ROOT

BATCH = """
import sys
sys.argv = ["danube", "version"]
from pydanube_cli.main import main
try:
    main()
except SystemExit:
    pass
from pydanube.model.batch import batch_of
batch_of([b"first"])
print("LOADED", *sorted({"pandas"} & set(sys.modules)))
"""

NAMES = list(all_commands())

LOADED = """
import sys
from pydanube_cli.main import main
heavy, sys.argv[:2] = set(sys.argv[1].split(",")), ["danube"]
try:
    main()
except SystemExit:
    pass
print("LOADED", *sorted(heavy & set(sys.modules)))
"""

# What each command must not import, because it would take longer than the command.
ARROW = ("pyarrow", "pyarrow.compute", "numpy", "pandas", "pydanube.model.envelope")
BROKER = (
    "pydanube_broker.broker",
    "pydanube_broker.storage",
    "starlette",
    "prometheus_client",
)
SERVERS = (
    "pydanube_broker.wire.grpc.http2",
    "grpc",
    "rich.table",
    "rich.console",
    "yaml",
)
SCHEMAS = ("msgspec", "fastavro", "jsonschema_rs", "grpc_tools")
UNUSED = (
    *("pydantic", "crc32c", "importlib.metadata", "multiprocessing"),
    *("pydanube.client.workers.workers", "pydanube.client.workers.results"),
)
CLIENT = ("google.protobuf", "pydanube.client.client", "pydantic")


def commands(command, words):
    contained = getattr(command, "commands", {})
    for name, each in contained.items():
        yield from commands(each, (*words, name))
    if not contained:
        yield words, command


def all_pairs():
    """Load all commands; the collector stays off, as pytest collects without it."""
    was_on = gc.isenabled()
    try:
        return [pair for name in NAMES for pair in commands(load(name), (name,))]
    finally:
        if not was_on:
            gc.disable()


ALL = all_pairs()
each_command = pytest.mark.parametrize(
    ("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL]
)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_commands_of_other_packages_name_their_extra_if_it_is_missing():
    others = {
        name
        for name, each in all_commands().items()
        if not each.module.startswith("pydanube_cli.")
    }
    assert {*ELSEWHERE} == others
    project = tomllib.loads((ROOT / "packages/pydanube/pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for name, extra in ELSEWHERE.items():
        package = all_commands()[name].module.partition(".")[0].replace("_", "-")
        assert any(re.match(rf"{package}\b", each) for each in extras[extra]), name


def test_command_list_shows_all_commands_and_an_example():
    result = run("--help")
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.stdout
    assert "danube produce /default/hello" in result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_summary_in_the_list_is_the_first_sentence_of_the_help(name):
    first, *_ = load(name).help.split("\n\n")
    assert first == all_commands()[name].summary


@each_command
def test_every_command_has_help_and_examples(words, command):
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert command.help.split("\n\n")[0].endswith(".")
    assert f"$ danube {' '.join(words)}" in result.stdout


@each_command
def test_every_example_parses(words, command):
    _, *lines = command.epilog.splitlines()
    for line in lines:
        check_line(line.removeprefix("$ "))


@each_command
def test_every_option_has_help(words, command):
    for parameter in command.params:
        # Those of listeners that are not installed are hidden, and say so when given.
        if getattr(parameter, "hidden", False):
            continue
        assert parameter.help, f"{parameter.name} has no help"
        assert parameter.help.endswith("."), parameter.name


@each_command
def test_an_unknown_option_is_a_usage_error(words, command):
    result = run(*words, "--no-such-option")
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_misspelt_command_is_corrected():
    result = run("prodce")
    assert result.exit_code == 2
    assert "produce" in result.stderr


def test_version_is_also_an_option():
    assert run("--version").stdout == f"danube {__version__}\n"
    assert __version__ in run("version").stdout


def loaded_by(words, modules):
    """Return which of *modules* the command with *words* imports."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, ",".join(modules), *words],
        env=environment("danube://127.0.0.1:1"),
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["--help"], [*ARROW, *BROKER, *SERVERS, *SCHEMAS, *CLIENT]),
        (["topics", "--help"], [*ARROW, *BROKER, *SERVERS, *SCHEMAS]),
        (["config", "list"], [*ARROW, *BROKER, *SERVERS, "google.protobuf"]),
        # These fail, because there is no broker, with all modules that they need.
        (["topics", "list"], [*ARROW, *BROKER, *SERVERS, *SCHEMAS, *UNUSED]),
        (
            ["subscriptions", "list", "/default/a"],
            [*ARROW, *BROKER, *SERVERS, *SCHEMAS, *UNUSED],
        ),
        (["broker", "--help"], ("pyarrow.compute",)),
    ],
)
def test_command_does_not_import_what_it_does_not_need(words, modules):
    assert loaded_by(words, modules) == []


@pytest.mark.slow
def test_commands_without_spark_do_not_import_pandas():
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", BATCH], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("was_on", [False, True])
def test_collections_do_not_look_at_what_was_imported_at_the_start(monkeypatch, was_on):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    before = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        load("version")
        assert gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
    assert frozen == ([] if was_on else [False])


def test_command_is_loaded_by_its_name():
    for name in all_commands():
        assert load(name).name == name


def test_only_the_subcommand_that_runs_is_built():
    every = load("topics").commands
    assert list(load("topics", "list").commands) == ["list"]
    assert load("topics", "lst").commands.keys() == every.keys() > {"list", "create"}
    # One that is found is as it would be among the others.
    assert load("topics", "hold").commands["hold"].help == every["hold"].help


def test_garbage_is_collected_while_a_command_runs():
    gc.disable()
    load("topics", "list")
    assert gc.isenabled()
