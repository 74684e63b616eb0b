"""What readers of the README and the tutorials need besides commands: other ports, and files that stay private."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, blocks, named, prose

WALKTHROUGHS = [ROOT / "README.md", *sorted((DOCS / "tutorial").glob("*.md"))]


@pytest.mark.parametrize("page", WALKTHROUGHS, ids=named)
def test_the_page_says_how_to_use_other_ports(page: Path) -> None:
    """The commands find the service by the same settings. `Reader` runs the pages with them."""
    assert "`make serve PORT=8081 OPS_PORT=9091`" in prose(page)
    assert "`export GATEPOST_PORT=8081 GATEPOST_OPS_PORT=9091`" in prose(page)


def test_git_ignores_the_secrets_that_the_pages_save() -> None:
    patterns = [line for line in (ROOT / ".gitignore").read_text("utf-8").splitlines() if line.startswith("/")]
    written = re.compile(r"(?:--save|store backup|audit export .*--output) (\S+)")
    saved = {file for page in PAGES for text in blocks(page, "sh") for file in written.findall(text)}
    assert {"acme.json", "acme-billing.json", "acme-endpoint.json", "gatepost-backup.db"} <= saved
    assert not [file for file in sorted(saved) if not any(fnmatch(f"/{file}", pattern) for pattern in patterns)]
