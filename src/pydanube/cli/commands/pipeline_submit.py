"""`danube pipeline submit`: runs a pipeline on a cluster."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from pydanube.cli.declaration import command
from pydanube.cli.declared_files import exit_on_problems
from pydanube.cli.output import OutputFormat, print_line
from pydanube.cli.pipeline_options import File
from pydanube.cli.pipeline_process import RunRequest
from pydanube.cli.pipeline_supervision import start_detached
from pydanube.declarations.parameters import option_text
from pydanube.model.errors import InvalidRequest, NotFound, RequestFailed
from pydanube.pipelines.kubernetes import Deployment, manifests
from pydanube.pipelines.loading import Pipeline
from pydanube.pipelines.submitting import Submission, parse_settings

KUBERNETES = "k8s://"
IN_CLUSTER = "k8s://https://kubernetes.default.svc"
"""The address of Kubernetes for its own pods."""


def add_to(app: typer.Typer) -> None:
    """Add the command to *app*."""
    command(
        app,
        "danube pipeline submit orders.yaml --master spark://head:7077 --dry-run",
        "danube pipeline submit orders.yaml --master spark://head:7077",
        "danube pipeline submit orders.yaml --remote sc://head:15002",
        "danube pipeline submit orders.yaml --master k8s:// --image "
        "registry.example/danube-spark:1",
    )(submit)


def submit(
    file: File,
    *,
    settings: Annotated[list[str] | None, typer.Option()] = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Annotated[list[str] | None, typer.Option()] = None,
    trigger: str | None = None,
    image: str | None = None,
    namespace: str = "default",
    claim: str | None = None,
    secret: str | None = None,
    dry_run: bool = False,
) -> None:
    """
    Run a pipeline on a cluster, in the background.

    A standalone master: 'spark-submit' runs the driver on this machine, which must stay
    on. Spark Connect: the same as 'danube pipeline run --remote URL --detach'. 'danube
    pipeline list', 'status', 'logs' and 'stop' work for both. Kubernetes: 'kubectl
    apply' creates a Deployment, or a Job or CronJob if the pipeline ends by itself.

    Args:
        settings (--set NAME=VALUE): Set a parameter of the file; may be repeated.
        master (URL): A standalone master, such as spark://host:7077; or Kubernetes:
            k8s:// for kubectl's current context, or k8s://https://host:6443.
        remote (URL): A Spark Connect server, such as sc://host:15002.
        conf (NAME=VALUE): A setting of Spark, which overrides that of the file; may be
            repeated.
        trigger (available-now|continuous|DURATION): When queries run a micro-batch;
            overrides the file.
        image (NAME): Kubernetes: the image with this package and Spark.
        namespace (NAME): Kubernetes: the namespace.
        claim (NAME): Kubernetes: an existing volume claim for the checkpoints; by
            default one is created.
        secret (NAME): Kubernetes: a secret, whose keys the pipeline reads as
            ${env:KEY} or ${file:KEY}.
        dry_run: Print the command and its files, or the manifests, and submit nothing.
    """
    request = RunRequest(
        file=str(file.resolve()),
        settings=settings or [],
        master=master,
        remote=remote,
        conf=conf or [],
        trigger=trigger,
        is_detached=True,
    )
    with exit_on_problems(OutputFormat.TABLE):
        if (master or "").startswith(KUBERNETES):
            _submit_to_kubernetes(
                request,
                Deployment(
                    master=IN_CLUSTER,
                    image=_required(image),
                    namespace=namespace,
                    claim=claim,
                    secret=secret,
                    arguments=_arguments(request),
                    settings=parse_settings(request.conf),
                ),
                is_dry=dry_run,
            )
            return
        for name, value in (("image", image), ("claim", claim), ("secret", secret)):
            if value is not None:
                raise InvalidRequest(f"--{name} is only for Kubernetes")
        pipeline = request.load()
        target = pipeline.spec.spark.remote or pipeline.spec.spark.master
        if target is None:
            raise InvalidRequest("set --master or --remote, or one in the file")
        if pipeline.spec.spark.remote is not None:
            _submit_to_connect(request, is_dry=dry_run)
        else:
            _submit_to_master(request, pipeline, target, is_dry=dry_run)


def _submit_to_connect(request: RunRequest, *, is_dry: bool) -> None:
    if not is_dry:
        start_detached(request)
        return
    words = ["danube", "pipeline", "run", request.file, "--detach"]
    if request.remote is not None:
        words += ["--remote", request.remote]
    for setting in request.conf:
        words += ["--conf", setting]
    print_line(shlex.join([*words, *_arguments(request)]))


def _submit_to_master(
    request: RunRequest, pipeline: Pipeline, master: str, *, is_dry: bool
) -> None:
    import pyspark  # noqa: PLC0415  # It takes a while.

    from pydanube.spark.java import find_java  # noqa: PLC0415
    from pydanube.spark.session import settings_for  # noqa: PLC0415

    own = pipeline.spec.spark.settings
    config = {name: option_text(value) for name, value in own.items()}
    found = Submission(
        name=pipeline.name,
        directory=pipeline.state.path.resolve(),
        master=master,
        spark_home=Path(pyspark.__file__).parent,
        python=sys.executable,
        settings=settings_for(master, config),
    )
    if is_dry:
        print_line(shlex.join(found.command))
        print_line(f"\n# {found.command[-1]}\n{found.application}")
        print_line(f"# spark.properties\n{pipeline.redact(found.properties)}")
        return
    found.write(msgspec.json.encode(request))
    variables = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(found.spark_home)}
    start_detached(
        msgspec.structs.replace(
            request, submit=found.command, submit_environment=variables
        )
    )


def _submit_to_kubernetes(request: RunRequest, to: Deployment, *, is_dry: bool) -> None:
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


def _required(image: str | None) -> str:
    if image is None:
        raise InvalidRequest("--image is missing: the image with pydanube and Spark")
    return image


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
