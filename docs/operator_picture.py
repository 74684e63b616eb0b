"""Takes the picture of the operator's view: `.venv/bin/python docs/operator_picture.py`. It needs Chromium."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
from tests import service  # noqa: E402 (the root is not on the path before)
from tests.browser import look  # noqa: E402
from tests.flows.test_delivery import Platform  # noqa: E402
from tests.receiver import OK, receiver  # noqa: E402

ACCOUNTS = {"acme": 42, "borealis": 0, "lumen": 17, "northwind": 128, "osprey": 3}  # name → events


def main() -> None:
    """Start the service, fill it and save the picture."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gatepost = stack.enter_context(service.running(folder / "data", operator_console="true"))
        healthy = stack.enter_context(receiver(OK))
        failing = stack.enter_context(receiver((503, {}, b"")))
        for name, events in ACCOUNTS.items():
            platform = Platform(gatepost, name)
            platform.connect(healthy.url, "invoice.paid")
            platform.connect(failing.url, "invoice.late", retry_schedule=[] if name == "lumen" else [3600])
            sent = [
                platform.send({"invoice": number}, "invoice.late" if number % 9 == 8 else "invoice.paid")
                for number in range(events)
            ]
            for delivery in sent[:1]:
                platform.once(delivery, "succeeded")
        gatepost.cli("account", "suspend", "borealis", "--reason", "unpaid")
        token = gatepost.cli_json("operator", "token")["token"]
        browser = stack.enter_context(look.browser())
        page = browser.new_page(viewport={"width": 1280, "height": 470}, timezone_id="UTC", color_scheme="light")
        page.goto(f"{gatepost.ops}/operator/#/accounts")
        page.get_by_label("Operator token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("northwind").wait_for()
        page.screenshot(path=DOCS / "images" / "operator-accounts.png")


if __name__ == "__main__":
    main()
