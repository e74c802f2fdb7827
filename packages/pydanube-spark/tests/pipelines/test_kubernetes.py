"""Tests of the manifests for Kubernetes."""

from itertools import pairwise

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.pure.kubernetes import (
    CONFIG_BYTES_MAX,
    RETRIES,
    Deployment,
    manifests,
    resource_name,
)
from support.drivers.command_lines import check_line

FILE = """\
name: My_orders
sources: {a: {topic: /default/a}}
sinks: {o: {input: a, format: noop}}
"""


@pytest.fixture
def found(tmp_path):
    def make(more="", files=None, **options):
        path = tmp_path / "p.yaml"
        path.write_text(FILE + more)
        pipeline = load(path)
        to = Deployment(
            master="k8s://https://kubernetes.default.svc",
            image="registry.example/spark:1",
            namespace="data",
            settings={"spark.executor.instances": "2"},
            **options,
        )
        given = files or {"p.yaml": FILE, "sql/q.sql": "SELECT 1"}
        made = manifests(pipeline.spec, pipeline.trigger, "p.yaml", given, to)
        assert {each["metadata"]["namespace"] for each in made} == {"data"}
        return {each["kind"]: each for each in made}

    return make


def pod_of(workload):
    spec = workload["spec"]
    if workload["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec["template"]["spec"]


@pytest.mark.parametrize(
    ("more", "schedule", "kind"),
    [
        ("", None, "Job"),
        ("trigger: continuous\n", None, "Deployment"),
        ("", "0 3 * * *", "CronJob"),
    ],
)
def test_the_workload_follows_the_trigger_and_the_schedule(found, more, schedule, kind):
    made = found(more, schedule=schedule)
    assert [*made] == [
        *("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service"),
        *("PersistentVolumeClaim", kind),
    ]
    [container] = pod_of(made[kind])["containers"]
    line = " ".join([*container["command"], *container["args"]])
    check_line(line.replace("$(POD_NAME)", "pod"))
    assert "--master k8s://https://kubernetes.default.svc" in line
    assert "spark.driver.host=danube-my-orders.data.svc" in line
    assert "spark.executor.instances=2" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "version", ["1.29", pytest.param("1.37", marks=pytest.mark.soak)]
)
def test_manifests_follow_the_schemas_of_kubernetes(found, version):
    validator = pytest.importorskip("kubernetes_validate")
    made = [
        *found("metrics: {listen: '0.0.0.0:9400'}\n", secret="keys").values(),
        found("trigger: continuous\n", claim="own")["Deployment"],
        found(schedule="0 3 * * *", timezone="Europe/Berlin")["CronJob"],
    ]
    for each in made:
        validator.validate(each, version, strict=True)
    wrong = made[-1] | {"spec": made[-1]["spec"] | {"timezone": "UTC"}}
    with pytest.raises(validator.ValidationError, match="timezone"):
        validator.validate(wrong, version, strict=True)


def test_a_job_is_repeated_but_not_if_the_file_is_invalid(found):
    spec = found()["Job"]["spec"]
    assert spec["backoffLimit"] == RETRIES
    [rule] = spec["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"] == {"operator": "In", "values": [2]}
    assert pod_of(found()["Job"])["restartPolicy"] == "Never"


def test_a_schedule_never_overlaps(found):
    made = found(schedule="0 3 * * *", timezone="Europe/Berlin")
    spec = made["CronJob"]["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("0 3 * * *", "Europe/Berlin")
    assert spec["concurrencyPolicy"] == "Forbid"


def test_a_pipeline_that_does_not_end_has_no_schedule(found):
    with pytest.raises(InvalidRequest, match="needs the trigger available-now"):
        found("trigger: continuous\n", schedule="0 3 * * *")


def test_two_drivers_never_run_at_the_same_time(found):
    spec = found("trigger: continuous\n")["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_files_are_beside_the_state_in_the_volume(found):
    made = found(claim="own", secret="keys")
    assert "PersistentVolumeClaim" not in made
    assert made["ConfigMap"]["data"] == {"p.yaml": FILE, "sql__q.sql": "SELECT 1"}
    pod = pod_of(made["Job"])
    [container] = pod["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts.keys() == {
        *("/pipeline", "/pipeline/p.yaml", "/pipeline/sql/q.sql"),
        "/run/secrets/danube",
    }
    assert mounts["/pipeline/sql/q.sql"]["subPath"] == "sql__q.sql"
    assert {each["name"] for each in pod["volumes"]} == {"files", "state", "secrets"}
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    # Tasks read the files that options name.
    directory = mounts["/run/secrets/danube"]["mountPath"]
    setting = f"spark.kubernetes.executor.secrets.keys={directory}"
    assert ["--conf", setting] in [*map(list, pairwise(container["args"]))]


def test_the_port_of_metrics_is_declared(found):
    made = found("metrics: {listen: '0.0.0.0:9400'}\n")
    [container] = pod_of(made["Job"])["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9400}]


def test_files_that_are_too_large_are_refused(found):
    with pytest.raises(InvalidRequest, match="put large files into the image"):
        found(files={"p.yaml": "x" * (CONFIG_BYTES_MAX + 1)})


def test_names_follow_the_rules_of_dns():
    assert resource_name("My_orders") == "danube-my-orders"
    assert len(resource_name("x" * 100)) == 52
