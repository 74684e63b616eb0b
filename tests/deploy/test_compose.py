"""The Compose file: it is valid, and its files, settings, commands, names and ports exist and agree."""

import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from gatepost import settings
from gatepost.run.supervisor import DRAIN
from tests.deploy.containerfile import parse
from tests.deploy.test_chart import missing
from tests.docs.pages import ROOT, blocks
from tests.unit.test_deploy import check_command

DEPLOY = ROOT / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
IMAGE = parse()[-1]
PAGE = ROOT / "docs" / "how-to" / "run-in-containers.md"
SECRETS = {"POSTGRES_PASSWORD": "secret", "GATEPOST_MASTER_KEY": "a2V5", "GRAFANA_PASSWORD": "secret"}
every_service = pytest.mark.parametrize("name", SERVICES)


def interpolated(text: str) -> str:
    """Replace variables as Compose does, with the values of a `.env` file."""
    return re.sub(r"\$\{(\w+)(?::([-?])([^}]*))?\}", lambda found: SECRETS.get(found[1], ""), text)


def environment(name: str) -> dict[str, str]:
    return IMAGE.environment | {key: interpolated(text) for key, text in SERVICES[name].get("environment", {}).items()}


def volumes(name: str) -> list[tuple[str, str]]:
    """Return the source and the target of each volume."""
    return [(found[0], found[1]) for found in (text.split(":") for text in SERVICES[name].get("volumes", []))]


def test_it_is_valid() -> None:
    try:
        schema = resources.files("check_jsonschema").joinpath("builtin_schemas", "vendor", "compose-spec.json")
    except ImportError:
        missing("there is no check-jsonschema, which has the schema")
    jsonschema_rs.validator_for(schema.read_text("utf-8")).validate(COMPOSE)


@every_service
def test_files_and_volumes_exist(name: str) -> None:
    for source, target in volumes(name):
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
        else:
            assert source in COMPOSE["volumes"]
        assert target.startswith("/")


@every_service
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_ports_are_published_once() -> None:
    published = [port.split(":")[1] for each in SERVICES.values() for port in each.get("ports", [])]
    assert len(published) == len(set(published))


def test_no_secret_is_in_the_file() -> None:
    for each in SERVICES.values():
        for name, text in each.get("environment", {}).items():
            if re.search(r"PASSWORD|KEY|SECRET", name):
                assert re.fullmatch(r"\$\{\w+:[-?][^}]*\}", text), name
    required = {name for name, how in re.findall(r"\$\{(\w+):(\?)", TEXT)}
    assert set(re.findall(r"(?:'|\\n)([A-Z_]+)=%s", TEXT)) == required == set(SECRETS)
    assert "/deploy/.env" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_the_service() -> None:
    server, found = SERVICES["server"], environment("server")
    own = {name.removeprefix(settings.PREFIX).lower() for name in found if name.startswith(settings.PREFIX)}
    assert own <= set(settings.NAMES)
    loaded = settings.load({}, found)
    check_command(server["command"])
    published = {tuple(port.split(":")[1:]) for port in server["ports"]}
    assert {(str(port), str(port)) for port in (loaded.port, loaded.ops_port)} <= published
    assert loaded.issuer == f"http://127.0.0.1:{loaded.port}", "the URL that the browser uses"
    assert int(server["stop_grace_period"].removesuffix("s")) >= DRAIN + 10
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == ROOT / "Containerfile"
    assert IMAGE.only("VOLUME").text in [target for _, target in volumes("server")]


def test_the_database_is_the_one_that_is_created() -> None:
    postgres = environment("postgres")
    url = settings.load({}, environment("server")).database
    user, password, database = (postgres[f"POSTGRES_{name}"] for name in ("USER", "PASSWORD", "DB"))
    assert url == f"postgresql://{user}:{password}@postgres/{database}"


@pytest.mark.parametrize("name", ["server", "receiver", "login"])
def test_containers_of_the_image_are_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"][0].startswith("/tmp:")


@pytest.mark.parametrize("name", ["receiver", "login"])
def test_examples_that_run(name: str) -> None:
    service = SERVICES[name]
    python, program = service["entrypoint"]
    assert python == "python"
    source = (ROOT / program.removeprefix("/")).read_text("utf-8")
    assert ("../examples", "/examples") in volumes(name)
    for word in service["command"]:
        assert not word.startswith("--") or f'add_argument("{word}"' in source, word
    for variable in service.get("environment", {}):
        assert f'"{variable}"' in source


def test_the_login_application_is_where_the_browser_finds_it() -> None:
    assert SERVICES["login"]["network_mode"] == "service:server"
    source = (ROOT / "examples" / "login_application.py").read_text("utf-8")
    found = re.search(r'"--port", type=int, default=(\d+)', source)
    assert found
    assert f"127.0.0.1:{found[1]}:{found[1]}" in SERVICES["server"]["ports"]


def test_prometheus_scrapes_a_name_that_is_accepted() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    [job] = config["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    assert job["job_name"] == "gatepost", "as in the alerting rules"
    assert target in settings.load({}, environment("server")).ops_allowed_hosts
    assert target.split(":")[0] in SERVICES
    assert all((DEPLOY / "prometheus" / file).is_file() for file in config["rule_files"])


def test_grafana_has_its_source_and_dashboard() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text("utf-8"))["datasources"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "gatepost.yml").read_text("utf-8"))["providers"]
    assert source["url"] == "http://prometheus:9090"
    mounted = dict(volumes("grafana"))
    assert Path(mounted["./grafana/gatepost.json"]).parent == Path(provider["options"]["path"])
    assert mounted["./grafana/provisioning"] == "/etc/grafana/provisioning"


def test_the_page_names_services_and_profiles() -> None:
    profiles = {profile for each in SERVICES.values() for profile in each.get("profiles", [])}
    commands = "\n".join(blocks(PAGE, "text"))
    assert set(re.findall(r"--profile (\w+)", commands)) == profiles
    for name in re.findall(r"compose.* (?:exec|run)(?: --?[\w-]+)* (\w+)", commands):
        assert name in SERVICES
    assert set(re.findall(r"(?:'|\\n)([A-Z_]+)=%s", commands)) == set(SECRETS)
