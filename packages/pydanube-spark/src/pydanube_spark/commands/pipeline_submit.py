"""`danube pipeline submit`: runs a pipeline on Kubernetes."""

from __future__ import annotations

import shutil
import subprocess
from typing import Annotated, Any

import msgspec
import typer

from pydanube.model.errors import InvalidRequest, NotFound, RequestFailed
from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import OutputFormat, print_line
from pydanube_spark.commands.pipeline_options import File
from pydanube_spark.commands.pipeline_process import RunRequest, parse_settings
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.pure.kubernetes import Deployment, manifests

KUBERNETES = "k8s://"
IN_CLUSTER = "k8s://https://kubernetes.default.svc"
"""The address of Kubernetes for its own pods."""


def add_to(app: typer.Typer) -> None:
    """Add the command to *app*."""
    command(
        app,
        "danube pipeline submit orders.yaml --image registry.example/danube-spark:1 "
        "--dry-run",
        "danube pipeline submit orders.yaml --image registry.example/danube-spark:1",
        "danube pipeline submit orders.yaml --image registry.example/danube-spark:1 "
        "--schedule '30 3 * * *' --timezone Europe/Berlin",
    )(submit)


def submit(
    file: File,
    *,
    image: str,
    settings: Annotated[list[str] | None, typer.Option()] = None,
    master: str = KUBERNETES,
    conf: Annotated[list[str] | None, typer.Option()] = None,
    trigger: str | None = None,
    namespace: str = "default",
    claim: str | None = None,
    secret: str | None = None,
    schedule: str | None = None,
    timezone: str = "UTC",
    dry_run: bool = False,
) -> None:
    """
    Run a pipeline on Kubernetes.

    'kubectl apply' creates a Deployment, or a Job or CronJob if the pipeline ends by
    itself. On other clusters, 'danube pipeline run' runs the driver on this machine.

    Args:
        image (NAME): The image with this package and Spark.
        settings (--set NAME=VALUE): Set a parameter of the file; may be repeated.
        master (URL): k8s:// for kubectl's current context, or k8s://https://host:6443.
        conf (NAME=VALUE): A setting of Spark, which overrides that of the file; may be
            repeated.
        trigger (available-now|continuous|DURATION): When queries run a micro-batch;
            overrides the file.
        namespace (NAME): The namespace.
        claim (NAME): An existing volume claim for the checkpoints; by default one is
            created.
        secret (NAME): A secret, whose keys the pipeline reads as ${env:KEY} or
            ${file:KEY}.
        schedule (CRON): When a pipeline that ends by itself is run, in the syntax of
            cron; without it, it is run once.
        timezone (NAME): The time zone of --schedule.
        dry_run: Print the manifests, and submit nothing.
    """
    request = RunRequest(
        file=str(file.resolve()),
        settings=settings or [],
        master=master,
        conf=conf or [],
        trigger=trigger,
    )
    with exit_on_problems(OutputFormat.TABLE):
        if not master.startswith(KUBERNETES):
            raise InvalidRequest(
                f"--master is {master}, and must begin with {KUBERNETES}; for other "
                "clusters, 'danube pipeline run --master' runs the driver on this "
                "machine"
            )
        _submit(
            request,
            Deployment(
                master=IN_CLUSTER,
                image=image,
                namespace=namespace,
                claim=claim,
                secret=secret,
                schedule=schedule,
                timezone=timezone,
                arguments=_arguments(request),
                settings=parse_settings(request.conf),
            ),
            is_dry=dry_run,
        )


def _submit(request: RunRequest, to: Deployment, *, is_dry: bool) -> None:
    import yaml  # noqa: PLC0415  # Only manifests need it.

    server = (request.master or "").removeprefix(KUBERNETES)
    pipeline = msgspec.structs.replace(request, master=None).load()
    found: list[dict[str, Any]] = manifests(
        pipeline.spec, pipeline.trigger, pipeline.file.name, _files_of(pipeline), to
    )
    text = yaml.safe_dump_all(found, sort_keys=False)
    if is_dry:
        print_line(text.rstrip())
        return
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise NotFound(
            "kubectl is not installed; --dry-run prints the manifests, for any other "
            "tool"
        )
    words = [kubectl, "apply", *(["--server", server] if server else []), "-f", "-"]
    done = subprocess.run(  # noqa: S603  # The user's own kubectl.
        words, check=False, input=text, text=True
    )
    if done.returncode:
        raise RequestFailed(f"kubectl apply failed with exit code {done.returncode}")


def _arguments(request: RunRequest) -> list[str]:
    """Return the arguments of a run for its parameters and its trigger."""
    words = [word for each in request.settings for word in ("--set", each)]
    return words + (["--trigger", request.trigger] if request.trigger else [])


def _files_of(pipeline: Pipeline) -> dict[str, str]:
    """
    Return the file of *pipeline*, and the files of SQL and Python beside it.

    The text of the file is not substituted, so it contains no secrets.
    """
    directory = pipeline.directory
    steps = pipeline.spec.steps.values()
    functions = [each.python for each in steps]
    functions += [each.python for each in pipeline.spec.sinks.values()]
    modules = [each.partition(":")[0] for each in functions if each is not None]
    named = [each.sql_file for each in steps if each.sql_file is not None]
    named += [each for each in modules if each.endswith(".py")]
    paths = {pipeline.file, *directory.glob("*.py"), *(directory / n for n in named)}
    found = {}
    for path in sorted(paths):
        if not path.resolve().is_relative_to(directory):
            raise InvalidRequest(
                f"{path} is outside of the directory of the pipeline; put it into the "
                "image as a package, or beside the pipeline"
            )
        name = path.resolve().relative_to(directory).as_posix()
        found[name] = path.read_text(encoding="utf-8")
    return found
