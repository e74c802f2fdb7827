"""
The manifests with which Kubernetes runs a pipeline.  Pure.

The driver is a pod that starts executors, which is Spark's client mode inside the
cluster.  Kubernetes restarts it, runs it on a schedule, and keeps its state in a volume
that a new pod mounts again:

    continuous or every ...    a Deployment with one pod
    available-now              a Job
    available-now, --schedule  a CronJob
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pipelines.pure.spec import Spec, Trigger

DIRECTORY = "/pipeline"
"""Where the pod has the files of the pipeline and its state."""
SECRETS = "/run/secrets/danube"
"""Where all pods have the keys of the secret as files."""
CONFIG_BYTES_MAX = 900 * 1024
"""The size of the files of a pipeline; a ConfigMap may have 1 MiB."""
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
NAME_CHARACTERS_MAX = 52
"""The longest name of a CronJob."""
RETRIES = 6
"""How often a Job that fails is repeated."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The options of the manifests of a pipeline."""

    master: str
    image: str
    namespace: str = "default"
    claim: str | None = None
    """An existing volume claim for the state; None: one is created."""
    secret: str | None = None
    """A secret; its keys are files of all pods, and variables of the driver's."""
    schedule: str | None = None
    """When a pipeline that ends by itself is run, as ``CronJob`` has it."""
    timezone: str = "UTC"
    arguments: Sequence[str] = ()
    """Further arguments of ``danube pipeline run``."""
    settings: Mapping[str, str]


def manifests(
    spec: Spec, trigger: Trigger, file: str, files: Mapping[str, str], to: Deployment
) -> list[Manifest]:
    """
    Return the manifests, in the order in which they are applied.

    Args:
        file: The name of the pipeline file among *files*.
        files: The files of the pipeline, by their paths relative to it.

    Raises:
        InvalidRequest: The files are too large for a ConfigMap, or a pipeline that
            does not end has a schedule.
    """
    if to.schedule is not None and not trigger.ends:
        raise InvalidRequest(
            "a pipeline with a schedule needs the trigger available-now"
        )
    size = sum(len(text.encode()) for text in files.values())
    if size > CONFIG_BYTES_MAX:
        raise InvalidRequest(
            f"the files of the pipeline have {size:,} bytes; a ConfigMap has at most "
            f"{CONFIG_BYTES_MAX:,}: put large files into the image"
        )
    name = resource_name(spec.name)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "danube"}
    found = [
        *_access(name, to.namespace),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {_key(path): text for path, text in files.items()},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {
                "clusterIP": "None",
                "selector": {"app.kubernetes.io/name": name},
                "ports": [
                    {"name": "driver", "port": DRIVER_PORT},
                    {"name": "block-manager", "port": BLOCK_MANAGER_PORT},
                ],
            },
        },
    ]
    if to.claim is None:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )
    pod = _pod(name, spec, file, files, to)
    found.append(_workload(name, trigger, pod, to))
    for each in found:
        each["metadata"] |= {"namespace": to.namespace, "labels": labels}
    return found


def resource_name(pipeline: str) -> str:
    """Return the name of a pipeline's resources, which follows the rules of DNS."""
    name = re.sub(r"[^a-z0-9-]+", "-", f"danube-{pipeline.lower()}")
    return name[:NAME_CHARACTERS_MAX].strip("-")


def _access(name: str, namespace: str) -> list[Manifest]:
    """Return what allows the driver to start executors."""
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": {"name": name},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": [
                        "pods",
                        "services",
                        "configmaps",
                        "persistentvolumeclaims",
                    ],
                    "verbs": [
                        "get",
                        "list",
                        "watch",
                        "create",
                        "patch",
                        "delete",
                        "deletecollection",
                    ],
                }
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [
                {"kind": "ServiceAccount", "name": name, "namespace": namespace}
            ],
        },
    ]


def _pod(
    name: str, spec: Spec, file: str, files: Mapping[str, str], to: Deployment
) -> Manifest:
    settings = {
        "spark.kubernetes.namespace": to.namespace,
        "spark.kubernetes.container.image": to.image,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104  # Executors connect.
        "spark.driver.host": f"{name}.{to.namespace}.svc",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
    }
    if to.secret is not None:
        # Options such as auth.apiKeyFile name files that each task reads.
        settings[f"spark.kubernetes.executor.secrets.{to.secret}"] = SECRETS
    settings |= to.settings
    confs = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    mounts = [{"name": "state", "mountPath": DIRECTORY}]
    mounts += [
        {"name": "files", "mountPath": f"{DIRECTORY}/{path}", "subPath": _key(path)}
        for path in files
    ]
    volumes: list[Manifest] = [
        {"name": "files", "configMap": {"name": name}},
        {"name": "state", "persistentVolumeClaim": {"claimName": to.claim or name}},
    ]
    container: Manifest = {
        "name": "driver",
        "image": to.image,
        "command": ["danube", "pipeline", "run", f"{DIRECTORY}/{file}"],
        "args": ["--master", to.master, *confs, *to.arguments],
        "env": [
            {
                "name": "POD_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            },
            {"name": "DANUBE_STATE", "value": f"{DIRECTORY}/.danube"},
        ],
        "volumeMounts": mounts,
    }
    if spec.metrics is not None:
        port = int(spec.metrics.listen.rpartition(":")[2])
        container["ports"] = [{"name": "metrics", "containerPort": port}]
    if to.secret is not None:
        container["envFrom"] = [{"secretRef": {"name": to.secret}}]
        mounts.append({"name": "secrets", "mountPath": SECRETS})
        container["env"].append({"name": "DANUBE_SECRETS", "value": SECRETS})
        volumes.append({"name": "secrets", "secret": {"secretName": to.secret}})
    return {
        "metadata": {"labels": {"app.kubernetes.io/name": name}},
        "spec": {
            "serviceAccountName": name,
            # A micro-batch is finished before the pod ends.
            "terminationGracePeriodSeconds": 600,
            "containers": [container],
            "volumes": volumes,
        },
    }


def _workload(name: str, trigger: Trigger, pod: Manifest, to: Deployment) -> Manifest:
    if not trigger.ends:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                # Two drivers must never use the same checkpoints.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": pod["metadata"]["labels"]},
                "template": pod,
            },
        }
    pod["spec"]["restartPolicy"] = "Never"
    # Exit code 2 says that the file is invalid, which no restart changes.
    job = {
        "backoffLimit": RETRIES,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"operator": "In", "values": [2]},
                }
            ]
        },
        "template": pod,
    }
    if to.schedule is None:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": job,
        }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": to.schedule,
            "timeZone": to.timezone,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": job},
        },
    }


def _key(path: str) -> str:
    """Return the key of a file in the ConfigMap, which has no directories."""
    return path.replace("/", "__")
