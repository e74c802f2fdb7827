"""`danube pipeline plan`, `test` and `verify`: the checks of pipelines."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs, to_builtins

from pydanube.declarations.pure.parameters import parse_set
from pydanube.model.errors import NotFound
from pydanube.model.suggestions import did_you_mean
from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import OutputFormat, Result, Table
from pydanube_spark.commands.pipeline_options import File, Master, Remote, Set
from pydanube_spark.commands.pipeline_process import load_pipeline
from pydanube_spark.commands.pipeline_runs import (
    check_brokers_of,
    spark_for,
)
from pydanube_spark.pipelines.loading import Pipeline, load
from pydanube_spark.pipelines.shadows import shadow_of

if TYPE_CHECKING:
    from pydanube_spark.pipelines.sample_cases import CaseFile
    from pydanube_spark.pipelines.sample_runs import Outcome
    from pydanube_spark.pipelines.verifying import Verification

EXIT_DIFFERENT = 1
VERIFICATION = {
    "Sink": "sink",
    "Writes to": "writes_to",
    "Expected": "expected",
    "Missing": "missing",
    "Unexpected": "unexpected",
    "Not checked": "not_checked",
}
TEST_MASTER = "local[2]"
TEST_SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
"""Settings for a few rows, which a pipeline may override."""


def add_to(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    command(
        app,
        "danube pipeline plan orders.yaml",
        "danube pipeline plan orders.yaml --no-spark --mermaid",
    )(plan)
    command(
        app,
        "danube pipeline test orders.yaml",
        "danube pipeline test orders.yaml --tests cases/refunds.yaml --format json",
        name="test",
    )(run_tests)
    command(
        app,
        "danube pipeline verify orders.yaml",
        "danube pipeline verify orders.yaml --sink table --format json",
    )(verify)


def plan(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    spark: bool = True,
    is_mermaid: bool = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Show the graph of a pipeline: its sources, steps and sinks, and what each reads.

    With Spark, each connection also has the columns of the rows. Nothing is started or
    written. The exit code is 2 if the file is invalid.

    Args:
        spark (--spark/--no-spark): Determine the columns with Spark, brokers and
            servers; --no-spark only reads the file, which is fast.
        is_mermaid (--mermaid): Print a flowchart in Mermaid, which GitHub and many
            editors draw.
    """
    from pydanube_spark.pipelines.diagrams import mermaid_of, text_of  # noqa: PLC0415

    with exit_on_problems(output_format):
        pipeline = load_pipeline(file, settings, master, remote)
        graph = pipeline.graph()
        if spark:
            check_brokers_of(pipeline)
            with spark_for(pipeline, pipeline.state.log_file) as session:
                from pydanube_spark.pipelines.validation import (  # noqa: PLC0415
                    graph_with_schemas,
                )

                graph = graph_with_schemas(session, pipeline)
    lines = mermaid_of(graph) if is_mermaid else text_of(graph)
    facts = to_builtins(graph)
    facts["nodes"] = [{"id": node.id, **to_builtins(node)} for node in graph.nodes]
    return Result(facts, *lines)


def run_tests(
    file: File,
    *,
    settings: Set = None,
    tests: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file with the tests; by default orders.test.yaml beside "
            "orders.yaml.",
        ),
    ] = None,
    only: str | None = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Test a pipeline with sample rows, on Spark in this process and without a broker.

    The sources are tables with the rows of the test, and the steps compute all of them
    at once. Nothing is written. The exit code is 1 if a test fails, and 2 if the
    pipeline or the file with the tests is invalid.

    Args:
        only (NAME): Run only the test with this name.
    """
    from pydanube_spark.pipelines.sample_cases import (  # noqa: PLC0415
        check_names,
        default_file,
        load_cases,
    )

    with exit_on_problems(output_format):
        tests = tests or default_file(file)
        cases = load_cases(tests)
        pipeline = _with_samples(file, settings, cases)
        check_names(cases, pipeline.spec, tests)
        outcomes = _run_cases(pipeline, cases, only)
    failed = [each for each in outcomes if not each.has_passed]
    parts = [part for each in outcomes for part in shown(each)]
    facts = {
        "file": str(tests),
        "tests": [
            {"has_passed": each.has_passed, **to_builtins(each)} for each in outcomes
        ],
    }
    total = f"{len(outcomes) - len(failed)} passed, {len(failed)} failed"
    return Result(facts, *parts, total, exit_code=EXIT_DIFFERENT if failed else 0)


def verify(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Verify only this sink; may be repeated.",
        ),
    ] = None,
    against: str | None = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Compare the sinks of a pipeline with the topics that it has read.

    Spark computes the steps once more, from the messages up to the last committed
    micro-batch of each sink, and compares the rows with those of the sink by checksums.
    Nothing is changed. The pipeline must not run meanwhile. The exit code is 1 if rows
    are missing or unexpected or a sink cannot be verified, 2 if the file is invalid,
    and 4 if the pipeline is running.

    Args:
        against (NAME): Compare with the targets of 'danube pipeline run --into NAME'
            instead.
    """
    with exit_on_problems(output_format):
        pipeline = load_pipeline(file, settings, master, remote)
        shadow = None if against is None else shadow_of(pipeline, against)
        whole = pipeline if shadow is None else shadow.pipeline
        names = _sinks_of(whole, sink)
        with pipeline.state.locked(f"{pipeline.name} cannot be verified"):
            check_brokers_of(pipeline)
            with spark_for(pipeline, pipeline.state.path / "verify.log") as session:
                from pydanube_spark.pipelines.verifying import (  # noqa: PLC0415
                    compare_sinks,
                    verify_sink,
                )

                found = [
                    verify_sink(session, pipeline, name)
                    if shadow is None
                    else compare_sinks(session, pipeline, shadow.pipeline, name)
                    for name in names
                ]
    is_right = all(each.is_right for each in found)
    facts = [{"is_right": each.is_right, **to_builtins(each)} for each in found]
    return Result(
        {"file": str(pipeline.file), "sinks": facts},
        Table.of(found, VERIFICATION),
        *(line for each in found for line in lines_of(each)),
        exit_code=0 if is_right else EXIT_DIFFERENT,
    )


def _sinks_of(pipeline: Pipeline, chosen: list[str] | None) -> list[str]:
    known = list(pipeline.spec.sinks)
    for name in chosen or ():
        if name not in known:
            near = did_you_mean(name, known)
            raise NotFound(f"{pipeline.name} has no sink {name}{near}")
    return chosen or known


def lines_of(found: Verification) -> list[str]:
    """Return the lines below the table: rows that differ, and what was not compared."""
    lines = []
    if found.problem is not None:
        lines.append(f"{found.sink}: cannot be verified: {found.problem}")
    for topic, offset in found.dropped.items():
        lines.append(
            f"{found.sink}: {topic} no longer has the messages before offset {offset}"
        )
    for what, rows in (
        ("missing", found.missing_rows),
        ("unexpected", found.unexpected_rows),
    ):
        lines += [f"{found.sink}: {what}: {row}" for row in rows]
    return lines


def _with_samples(file: Path, settings: list[str] | None, cases: CaseFile) -> Pipeline:
    """Return the pipeline with the parameters of *cases*, on local Spark."""
    given = cases.parameter_texts | parse_set(settings or ())
    environment = os.environ | cases.environment
    pipeline = load(file, parameters=given, environment=environment)
    spark = structs.replace(
        pipeline.spec.spark,
        master=TEST_MASTER,
        remote=None,
        settings=TEST_SETTINGS | pipeline.spec.spark.settings,
    )
    return replace(pipeline, spec=structs.replace(pipeline.spec, spark=spark))


def _run_cases(pipeline: Pipeline, cases: CaseFile, only: str | None) -> list[Outcome]:
    from pydanube_spark.pipelines.sample_runs import run_case  # noqa: PLC0415

    chosen = {only} if only is not None else set(cases.tests)
    missing = chosen - cases.tests.keys()
    if missing:
        near = did_you_mean(missing.pop(), cases.tests)
        raise NotFound(f"there is no test {only}{near}")
    with spark_for(pipeline, pipeline.state.path / "test.log") as session:
        return [
            run_case(session, pipeline, name, case)
            for name, case in cases.tests.items()
            if name in chosen
        ]


def shown(outcome: Outcome) -> list[str | Table]:
    """Return the lines of one test, and tables of its differences."""
    if outcome.has_passed:
        return [f"passed: {outcome.name}"]
    parts: list[str | Table] = [f"FAILED: {outcome.name}"]
    if outcome.error is not None:
        parts.append(f"  {outcome.error}")
    for place, found in outcome.differences.items():
        rows = [("missing", row) for row in found.missing]
        rows += [("unexpected", row) for row in found.unexpected]
        parts.append(
            Table(
                (place, *found.columns),
                [
                    (what, *(_cell(row[name]) for name in found.columns))
                    for what, row in rows
                ],
            )
        )
    return parts


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
