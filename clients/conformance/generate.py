"""Writes the conformance table: webhooks.json, tokens.json and operations.json. `--check` compares instead."""

import json
import sys
from pathlib import Path
from typing import Any

import operation_cases
import token_cases
import webhook_cases

FOLDER = Path(__file__).parent


def tables() -> dict[str, Any]:
    """The content of each file."""
    return {
        "webhooks.json": {"cases": webhook_cases.cases()},
        "tokens.json": {"key_sets": token_cases.KEY_SETS, "cases": token_cases.cases()},
        "operations.json": {"cases": operation_cases.cases()},
    }


def main() -> None:
    """Write or compare every file."""
    for name, table in tables().items():
        names = [case["name"] for case in table["cases"]]
        assert len(names) == len(set(names)), f"{name}: two cases have the same name"  # noqa: S101
        text = json.dumps(table, indent=1, ensure_ascii=False) + "\n"
        file = FOLDER / name
        if "--check" not in sys.argv:
            file.write_text(text, "utf-8")
        elif file.read_text("utf-8") != text:
            sys.exit(f"{file.name} is not current: run `make clients`")


if __name__ == "__main__":
    main()
