"""The Helm chart: what Helm renders is valid for Kubernetes, and agrees with the image, the settings and the command.

Rendering needs Helm, and validation needs the packages in requirements/deploy.txt. `make check-deploy` provides both.
Without them, tests are skipped, unless `DEPLOY_TESTS=required`.
"""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import yaml

from gatepost import __version__, settings
from gatepost.run.supervisor import DRAIN
from tests.deploy.containerfile import parse
from tests.docs.pages import ROOT
from tests.unit.test_deploy import check_command, exported, series

CHART = ROOT / "deploy" / "helm" / "gatepost"
IMAGE = parse()[-1]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
KUBERNETES = ("1.30", "1.34")  # the oldest that the chart supports, and a recent one

REQUIRED = {
    "baseUrl": "https://auth.example.com",
    "image": {"repository": "images.example.com/gatepost"},
    "secret": {"existing": "gatepost"},
}
TRIAL = REQUIRED | {"secret": {"database": "postgresql://gatepost:secret@db/gatepost", "masterKey": "a2V5"}}
_PEER = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
_PLACEMENT = {
    "podAnnotations": {"example.com/note": "yes"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}
EVERYTHING = REQUIRED | {
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"trusted_proxies": "10.0.0.0/8", "intake": "http", "host": "::", "ops_host": "::"},
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/gatepost", "readOnly": True}],
    "web": {"workers": 2, "autoscaling": {"enabled": True}} | _PLACEMENT,
    "deliver": {"deliverers": 2, "autoscaling": {"enabled": True, "metricLabels": {"job": "gatepost"}}} | _PLACEMENT,
    "service": {"annotations": {"example.com/note": "yes"}},
    "operations": {"port": 9191},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"example.com/note": "yes"}},
    "networkPolicy": {
        "enabled": True, "publicFrom": _PEER, "operationsFrom": _PEER, "databaseTo": _PEER,
        "extraEgress": [{"ports": [{"port": 4222}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceAccountName": "gatepost",
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {"required": REQUIRED, "trial": TRIAL, "everything": EVERYTHING}

pytestmark = pytest.mark.xdist_group("chart")
every_case = pytest.mark.parametrize("case", CASES)


def missing(what: str) -> None:
    if os.environ.get("DEPLOY_TESTS") == "required":
        pytest.fail(f"{what}, and DEPLOY_TESTS says that it must be there")
    pytest.skip(f"{what}; `make check-deploy` installs it")


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm", path=f"{os.environ.get('PATH', os.defpath)}:{ROOT / '.cache' / 'bin'}")
    if program is None:
        missing("there is no helm on this machine")
    command = [str(program), *arguments, str(CHART), *(["--values", "-"] if values is not None else [])]
    return subprocess.run(command, check=False, capture_output=True, text=True, input=json.dumps(values))


@cache
def rendered(case: str, version: str = KUBERNETES[-1]) -> list[dict[str, Any]]:
    """Return the objects that an installation creates, hooks included."""
    names = ["template", "auth", "--namespace", "platform", "--kube-version", f"{version}.0"]
    done = helm(*names, values=CASES[case])
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(case: str, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in rendered(case) if each["kind"] == kind}


def pods(case: str) -> dict[str, dict[str, Any]]:
    """Return the specification of each pod, by the component that it belongs to."""
    workloads = {**of_kind(case, "Deployment"), **of_kind(case, "Job")}
    return {name.rpartition("-")[2]: each["spec"]["template"]["spec"] for name, each in workloads.items()}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """Return the settings that a pod has, those of the image included. Secrets have a value of their form."""
    secrets = {"database": "postgresql://gatepost@db/gatepost", "master-key": "a2V5"}
    found = dict(IMAGE.environment)
    for each in pod["containers"][0]["env"]:
        found[each["name"]] = each["value"] if "value" in each else secrets[each["valueFrom"]["secretKeyRef"]["key"]]
    return found


# --- without Helm


def test_versions() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == __version__
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


def test_every_value_is_in_the_schema_and_used() -> None:
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())

    def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        assert set(schema["properties"]) - {"global"} == set(values), path
        for name, value in values.items():
            assert re.search(rf"\.{name}\b|\"{name}\"", templates), f"{path}{name} is not used"
            inner = schema["properties"][name]
            if "properties" in inner and name != "settings":
                compare(value, inner, f"{path}{name}.")

    compare(VALUES, SCHEMA, "")


def test_settings_that_can_be_set() -> None:
    """The rest are set by the chart, or are for one's own machine."""
    offered = set(SCHEMA["properties"]["settings"]["properties"])
    assert set(settings.NAMES) - offered == {
        "base_url", "data", "database", "deliverers", "dev", "master_key", "master_key_file", "only", "ops_port",
        "port", "workers",
    }  # fmt: skip
    assert offered <= set(settings.NAMES)


def test_the_pods_have_time_to_stop() -> None:
    assert VALUES["terminationGracePeriodSeconds"] >= DRAIN + VALUES["preStopSeconds"] + 10
    assert SCHEMA["properties"]["terminationGracePeriodSeconds"]["minimum"] >= DRAIN + 10


def test_the_metric_of_the_autoscaler() -> None:
    name = VALUES["deliver"]["autoscaling"]["metric"]
    assert exported()[name].type == "gauge"
    for page in (CHART / "values.yaml", ROOT / "docs" / "how-to" / "run-on-kubernetes.md"):
        assert set(re.findall(r"\bgatepost_\w+", page.read_text("utf-8"))) <= set(series())


# --- with Helm


def test_the_chart_passes_lint() -> None:
    done = helm("lint", "--strict", values=EVERYTHING)
    assert done.returncode == 0, done.stdout


@every_case
@pytest.mark.parametrize("version", KUBERNETES)
def test_objects_are_valid(case: str, version: str) -> None:
    objects = rendered(case, version)
    try:
        validator: Any = import_module("kubernetes_validate")
    except ImportError:
        missing("there is no kubernetes-validate")
    for each in objects:
        if each["kind"] != "ServiceMonitor":  # of the Prometheus operator, checked below
            validator.validate(each, version, strict=True)


@every_case
def test_names_and_namespaces(case: str) -> None:
    objects = rendered(case)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    assert {each["metadata"]["namespace"] for each in objects} == {"platform"}


def test_every_option_renders_something() -> None:
    kinds = {each["kind"] for each in rendered("everything")}
    optional = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "ServiceMonitor"}
    assert kinds - {each["kind"] for each in rendered("required")} == optional
    assert {each["kind"] for each in rendered("trial")} - kinds == {"Secret"}


@every_case
def test_pods_are_confined(case: str) -> None:
    user = int(IMAGE.only("USER").text.split(":")[0])
    assert set(pods(case)) == {"web", "deliver", "migrate"}
    for pod in pods(case).values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"] == {
            "runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        }  # fmt: skip
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert {IMAGE.only("VOLUME").text, "/tmp"} <= mounts
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


@every_case
def test_commands_and_settings(case: str) -> None:
    for name, pod in pods(case).items():
        [container] = pod["containers"]
        assert "command" not in container, "the entry point of the image"
        check_command(container["args"])
        found = environment(pod)
        loaded = settings.load({}, found)
        own = {key.removeprefix(settings.PREFIX).lower() for key in found if key.startswith(settings.PREFIX)}
        assert own <= set(settings.NAMES)
        if name != "migrate":
            assert container["args"][:3] == ["serve", "--only", name]
            ports = {each["name"]: each["containerPort"] for each in container["ports"]}
            assert ports == {"http": loaded.port, "operations": loaded.ops_port}


@every_case
def test_probes_ask_the_operations_plane(case: str) -> None:
    plane = (ROOT / "gatepost" / "web" / "ops" / "plane.py").read_text("utf-8")
    for name in ("web", "deliver"):
        [container] = pods(case)[name]["containers"]
        probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert {probe["port"] for probe in probes.values()} == {"operations"}
        assert probes["readiness"]["path"] == "/readyz"
        assert probes["liveness"]["path"] == probes["startup"]["path"] == "/healthz"
        assert all(f'"{probe["path"]}": self.' in plane for probe in probes.values())


@every_case
def test_references_resolve(case: str) -> None:
    """Services, autoscalers and budgets select the pods that they are for."""
    deployments, services = of_kind(case, "Deployment"), of_kind(case, "Service")
    labels = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in deployments.items()}

    def selected(selector: dict[str, str]) -> set[str]:
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    assert selected(services["auth-gatepost"]["spec"]["selector"]) == {"auth-gatepost-web"}
    assert selected(services["auth-gatepost-operations"]["spec"]["selector"]) == set(deployments)
    for name, each in deployments.items():
        assert selected(each["spec"]["selector"]["matchLabels"]) == {name}
    for name, each in of_kind(case, "PodDisruptionBudget").items():
        assert selected(each["spec"]["selector"]["matchLabels"]) == {name}
    for name, each in of_kind(case, "HorizontalPodAutoscaler").items():
        assert each["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in deployments[name]["spec"]
    for each in of_kind(case, "Ingress").values():
        [rule] = each["spec"]["rules"]
        backend = rule["http"]["paths"][0]["backend"]["service"]
        assert rule["host"] == "auth.example.com"
        ports = [port["name"] for port in services[backend["name"]]["spec"]["ports"]]
        assert backend["port"]["name"] in ports


@every_case
def test_the_operations_plane_accepts_the_name_of_its_service(case: str) -> None:
    [service] = [each for name, each in of_kind(case, "Service").items() if name.endswith("-operations")]
    [port] = [each["port"] for each in service["spec"]["ports"]]
    loaded = settings.load({}, environment(pods(case)["web"]))
    assert f"{service['metadata']['name']}.platform.svc:{port}" in loaded.ops_allowed_hosts


def test_the_autoscaler_of_deliveries() -> None:
    [scaler] = [each for name, each in of_kind("everything", "HorizontalPodAutoscaler").items() if "deliver" in name]
    [metric] = scaler["spec"]["metrics"]
    assert metric["type"] == "External"
    assert metric["external"]["metric"]["name"] == "gatepost_queue_age_seconds"
    assert metric["external"]["target"]["type"] == "Value", "every pod reports the same age"


def test_the_service_monitor() -> None:
    """The members that the Prometheus operator requires, and a job of the name that the alerts have."""
    [monitor] = of_kind("everything", "ServiceMonitor").values()
    service = of_kind("everything", "Service")["auth-gatepost-operations"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "gatepost"
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["path"] == "/metrics"


@pytest.mark.parametrize(("case", "hooks"), [("required", "pre-install,pre-upgrade"), ("trial", "pre-upgrade")])
def test_the_migration_runs_when_its_secret_exists(case: str, hooks: str) -> None:
    [job] = of_kind(case, "Job").values()
    assert job["metadata"]["annotations"]["helm.sh/hook"] == hooks
    secrets = {
        each["valueFrom"]["secretKeyRef"]["name"]
        for each in pods(case)["migrate"]["containers"][0]["env"]
        if "valueFrom" in each
    }
    assert secrets == ({"gatepost"} if case == "required" else set(of_kind(case, "Secret")))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (REQUIRED | {"baseUrl": ""}, "baseUrl: required"),
        (REQUIRED | {"baseUrl": "http://auth.example.com"}, "baseUrl"),
        (REQUIRED | {"image": {}}, "image.repository: required"),
        (REQUIRED | {"secret": {}}, "secret.existing: required"),
        (REQUIRED | {"settings": {"trusted_proxy": "10.0.0.0/8"}}, "trusted_proxy"),
        (REQUIRED | {"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds"),
    ],
    ids=["no base URL", "http", "no image", "no secret", "unknown setting", "too little time to stop"],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    done = helm("template", "auth", "--kube-version", f"{KUBERNETES[-1]}.0", values=values)
    assert done.returncode != 0
    assert message in done.stderr
