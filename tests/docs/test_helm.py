"""The Helm chart: its values, and what it makes of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
import yaml

from pydanube_broker.servers.settings.addresses import check_exposure
from pydanube_broker.servers.settings.config import load_config
from support.project import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CHART = ROOT / "deploy" / "helm" / "pydanube"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
GIVEN = {
    "settings.metadata.etcd.endpoints": "https://etcd:2379",
    "settings.storage.remote.url": "s3://danube/shop",
}
BOOTSTRAP = {"bootstrapKey.secret": "danube-bootstrap"}
HELM = os.environ.get("HELM") or shutil.which("helm")
INSTRUCTION = (
    "helm is not installed; install it with 'go install "
    "helm.sh/helm/v3/cmd/helm@latest', or name it in the variable HELM"
)


def test_default_values_follow_the_schema() -> None:
    jsonschema_rs.validate(SCHEMA, VALUES)


@pytest.mark.parametrize(
    "wrong", [{"brokers": 0}, {"broker": 3}, {"image": {"tag": 7}}, {"tlsSecret": True}]
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMA, VALUES | wrong)


def test_default_settings_are_settings_of_a_cluster(tmp_path: Path) -> None:
    settings = json.loads(json.dumps(VALUES["settings"]))
    settings["metadata"]["etcd"]["endpoints"] = "http://etcd:2379"
    settings["storage"]["remote"]["url"] = "s3://danube/shop"
    path = tmp_path / "broker.yaml"
    path.write_text(yaml.safe_dump(settings))
    assert load_config(path, {}, {}).cluster.enabled


def test_every_value_is_used_and_every_used_value_exists() -> None:
    text = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    used = set(re.findall(r"\.Values\.(\w+)", text))
    assert used == set(VALUES)
    assert set(SCHEMA["properties"]) == set(VALUES) | {"global"}


@pytest.fixture(scope="module")
def helm() -> str:
    if HELM is None:
        pytest.skip(INSTRUCTION)
    return HELM


def rendered(helm: str, values: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the objects of a release named shop, by kind and name."""
    options = [
        option
        for name, value in values.items()
        for option in ("--set", f"{name}={json.dumps(value).strip(chr(34))}")
    ]
    done = subprocess.run(
        [
            *(helm, "template", "shop", str(CHART), "--namespace", "n"),
            # A helm that go install has built knows only an old version.
            *("--kube-version", "1.29.0", *options),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def broker_of(objects: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """Return the pod's specification."""
    spec: dict[str, Any] = objects["StatefulSet", "shop-pydanube"]["spec"]["template"]
    return spec["spec"]


def config_of(objects: dict[tuple[str, str], Any], directory: Path) -> Any:
    """Return the settings of the first broker, as it reads them."""
    path = directory / "broker.yaml"
    path.write_text(objects["ConfigMap", "shop-pydanube"]["data"]["broker.yaml"])
    [container] = broker_of(objects)["containers"]
    variables: dict[str, str] = {"POD_NAME": "shop-pydanube-0"}
    for each in container["env"]:
        if "value" in each:
            variables[each["name"]] = re.sub(
                r"\$\((\w+)\)", lambda found: variables[found[1]], each["value"]
            )
    return load_config(path, variables, {})


@pytest.mark.soak
def test_brokers_of_the_chart_form_a_cluster(helm: str, tmp_path: Path) -> None:
    objects = rendered(helm, GIVEN | BOOTSTRAP)
    config = config_of(objects, tmp_path)
    check_exposure(config)
    domain = "shop-pydanube-0.shop-pydanube-brokers.n.svc.cluster.local"
    assert config.security.enabled
    assert config.cluster.broker_id == "shop-pydanube-0"
    assert config.cluster.peer_host == domain
    assert config.cluster.advertised_url == f"danube://{domain}:6651"
    assert config.listen.advertised_url == f"http://{domain}:6650"
    assert config.listen.connect_url == "http://shop-pydanube.n.svc.cluster.local:6650"
    assert config.metadata.etcd.endpoints == "https://etcd:2379"
    pod = broker_of(objects)
    [copy] = pod["initContainers"]
    key = copy["command"][-1]
    assert config.security.bootstrap_key_file == key
    assert pod["containers"][0]["args"] == [
        "broker",
        "--config",
        "/etc/danube/broker.yaml",
    ]


@pytest.mark.soak
def test_objects_of_the_chart_belong_together(helm: str) -> None:
    objects = rendered(helm, GIVEN | BOOTSTRAP)
    stateful = objects["StatefulSet", "shop-pydanube"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    headless = objects["Service", stateful["serviceName"]]["spec"]
    assert headless["clusterIP"] == "None"
    selectors = [
        headless["selector"],
        objects["Service", "shop-pydanube"]["spec"]["selector"],
        stateful["selector"]["matchLabels"],
        objects["PodDisruptionBudget", "shop-pydanube"]["spec"]["selector"][
            "matchLabels"
        ],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    pod = stateful["template"]["spec"]
    volumes = {each["name"] for each in pod["volumes"]}
    for container in [*pod["containers"], *pod["initContainers"]]:
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"]
    [broker] = pod["containers"]
    ports = {each["name"] for each in broker["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert broker[probe]["httpGet"]["port"] in ports
    for service in ("shop-pydanube", "shop-pydanube-brokers"):
        for port in objects["Service", service]["spec"]["ports"]:
            assert port["targetPort"] in ports
    # A broker hands its topics over in this time.
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert ("ServiceAccount", pod["serviceAccountName"]) in objects


@pytest.mark.soak
def test_a_chart_with_tls_uses_it_everywhere(helm: str, tmp_path: Path) -> None:
    objects = rendered(helm, GIVEN | BOOTSTRAP | {"tlsSecret": "danube-tls"})
    config = config_of(objects, tmp_path)
    assert config.tls.is_enabled
    assert config.cluster.advertised_url.startswith("danubes://")
    assert config.listen.connect_url.startswith("https://")
    [mount] = [
        each["mountPath"]
        for each in broker_of(objects)["containers"][0]["volumeMounts"]
        if each["name"] == "tls"
    ]
    for file in (
        config.tls.certificate_file,
        config.tls.key_file,
        config.cluster.ca_file,
    ):
        assert file.startswith(f"{mount}/")
    probe = broker_of(objects)["containers"][0]["readinessProbe"]
    assert probe["httpGet"]["scheme"] == "HTTPS"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("values", "text"),
    [
        (GIVEN, "bootstrapKey.secret"),
        (BOOTSTRAP, "settings.metadata.etcd.endpoints is required"),
        (GIVEN | BOOTSTRAP | {"brokers": 0}, "brokers"),
    ],
)
def test_incomplete_values_are_refused(
    helm: str, values: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        rendered(helm, values)


@pytest.mark.soak
def test_an_insecure_chart_needs_no_key(helm: str, tmp_path: Path) -> None:
    objects = rendered(helm, GIVEN | {"insecure": True})
    config = config_of(objects, tmp_path)
    check_exposure(config)
    assert not config.security.enabled
    assert "initContainers" not in broker_of(objects)
