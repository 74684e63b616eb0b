"""The console's files: what is served of them and how, and that what is committed was built from the sources."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from gatepost.egress.curl_errors import timed_out
from gatepost.web.deliveries import PARAMETERS
from gatepost.web.ops import pages
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES, TRANSITIONS
from gatepost.webhooks.summary import CLASSES

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "console"
BUILT = ROOT / "gatepost" / "console"
BASE = "https://gate.example"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class TestServed:
    def test_every_file_has_a_type(self) -> None:
        kinds = {path.rpartition(".")[2]: reply.media_type for path, reply in pages.load(BASE).items()}
        assert kinds == {
            "/console/": "text/html; charset=utf-8",
            "js": "text/javascript; charset=utf-8",
            "css": "text/css; charset=utf-8",
            "svg": "image/svg+xml",
        }

    def test_the_base_url_is_escaped_in_the_page(self) -> None:
        page = pages.load('https://gate.example"><b>')[pages.ROOT].body.decode()
        assert 'content="https://gate.example&quot;&gt;&lt;b&gt;"' in page

    def test_the_policy(self) -> None:
        policy = dict(pages.load(BASE)[pages.ROOT].headers)["content-security-policy"]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["connect-src"] == BASE
        assert "'self'" not in rules["connect-src"], "without the intake, only the public listener is called"
        assert rules["script-src"] == rules["style-src"] == "'self'"
        assert rules["form-action"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        assert "unsafe" not in policy

    def test_the_intake_is_called_only_where_it_is_on(self) -> None:
        on, off = pages.load(BASE, takes_events=True)[pages.ROOT], pages.load(BASE)[pages.ROOT]
        assert f"connect-src {BASE} 'self';" in dict(on.headers)["content-security-policy"]
        assert b'<meta name="gatepost-intake" content="http">' in on.body
        assert b'<meta name="gatepost-intake" content="off">' in off.body

    def test_nothing_in_the_page_breaks_the_policy(self) -> None:
        page = pages.load(BASE)[pages.ROOT].body.decode()
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|https?://(?!gate\.example)", page)

    def test_files_that_change_have_another_name(self) -> None:
        files = pages.load(BASE)
        del files[pages.ROOT]
        assert files
        for path, reply in files.items():
            assert re.search(r"-[A-Za-z0-9_-]{8}\.[a-z]+$", path), path
            assert "immutable" in dict(reply.headers)["cache-control"]

    def test_the_operators_page_has_the_same_policy_but_calls_its_own_origin(self) -> None:
        console, operator = pages.load(BASE)[pages.ROOT], pages.load_operator()[pages.OPERATOR]
        policy = dict(operator.headers)["content-security-policy"]
        assert "connect-src 'self'" in policy
        assert dict(console.headers)["content-security-policy"].replace(BASE, "'self'") == policy
        assert console.headers[1:] == operator.headers[1:]
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|https?://", operator.body.decode())

    @pytest.mark.parametrize(
        ("host", "shown"),
        [
            ("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("::1", "[::1]"), ("10.0.0.7", "10.0.0.7"),
            ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"),
        ],
    )  # fmt: skip
    def test_its_address(self, host: str, shown: str) -> None:
        assert pages.address(host, 9090) == f"http://{shown}:9090/console/"


class TestBuilt:
    """Without Node: the build records the hash of what it was made from, and of what it made."""

    record = json.loads((BUILT / "built.json").read_text())

    def test_from_these_sources(self) -> None:
        names = ["index.html", "operator.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.js"]
        found = [SOURCES / name for name in names] + [path for path in (SOURCES / "src").rglob("*") if path.is_file()]
        lines = sorted(f"{path.relative_to(SOURCES).as_posix()} {digest(path.read_bytes())}\n" for path in found)
        assert self.record["sources"] == digest("".join(lines).encode()), "the sources changed: run `make console`"

    def test_these_files(self) -> None:
        files = [path for path in BUILT.rglob("*") if path.is_file() and path.name != "built.json"]
        found = {path.relative_to(BUILT).as_posix(): digest(path.read_bytes()) for path in files}
        assert self.record["files"] == found, "built files are never edited: run `make console`"

    def test_it_is_small(self) -> None:
        assert sum(path.stat().st_size for path in BUILT.rglob("*") if path.is_file()) < 250_000

    def test_it_sends_no_requests_elsewhere(self) -> None:
        script = "".join(path.read_text() for path in BUILT.glob("assets/*.js"))
        found = {host for host in re.findall(r"https?://([^/\s\"'`]+)", script) if not host.endswith("example.com")}
        assert found == {"www.w3.org"}, "names of markup languages, never asked"
        assert "/oauth/tokens" in script
        assert "/webhooks/deliveries" in script

    def test_versions_are_pinned_and_no_address_is_locked(self) -> None:
        package = json.loads((SOURCES / "package.json").read_text())
        assert package["devDependencies"]["vite"] == "8.3.4"
        assert package["overrides"]["rolldown"] == "1.2.15"
        wanted = package["dependencies"] | package["devDependencies"]
        assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
        locked = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
        assert not any("resolved" in each for each in locked.values())
        assert locked["node_modules/rolldown"]["version"] == "1.2.15"
        assert all("integrity" in each for name, each in locked.items() if name)


class TestWords:
    """The console has the tables of the service, word for word."""

    words = json.loads((SOURCES / "src" / "words.json").read_text())

    def test_tables(self) -> None:
        assert set(self.words["statuses"]) == set(TRANSITIONS)
        assert self.words["ends"] == {reason: meaning for reason, (_, meaning) in ENDS.items()}
        assert self.words["because"] == BECAUSE
        assert tuple(self.words["failures"]) == FAILURES

    def test_phases_of_timeouts(self) -> None:
        """The console finds the phase of a timeout by the words of its detail."""
        listed = (SOURCES / "src" / "phases.ts").read_text().partition("RAN_OUT")[2].partition("\n]")[0]
        phases = dict(re.findall(r"\['([^']+)', '([^']+)'\]", listed))
        shown = {"send": "first byte", "first_byte": "first byte"}
        for phase in ("dns", "connect", "tls", "send", "first_byte", "body"):
            detail = timed_out(phase, 15.0)
            assert [name for words, name in phases.items() if words in detail][:1] == [shown.get(phase, phase)], detail

    def test_classes(self) -> None:
        charted = (SOURCES / "src" / "charts.tsx").read_text().partition("const CLASSES")[2].partition("}")[0]
        assert set(re.findall(r"^  '?(\w+)'?:", charted, re.MULTILINE)) == set(CLASSES)

    def test_filters(self) -> None:
        named = (SOURCES / "src" / "route.ts").read_text().partition("FILTERS = [")[2].partition("]")[0]
        filters = list(PARAMETERS)[: list(PARAMETERS).index("limit")]
        assert sorted(re.findall(r"'(\w+)'", named)) == sorted(filters)
