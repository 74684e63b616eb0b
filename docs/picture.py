"""Runs `make demo` and keeps what a terminal shows of it: `.venv/bin/python docs/picture.py` writes images/demo.svg.

The table that is redrawn while one watches is kept as it is in the end. The picture needs nothing from elsewhere.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

DOCS = Path(__file__).parent
PICTURE = DOCS / "images" / "demo.svg"
sys.path.insert(0, str(DOCS.parent))
from examples import demo  # noqa: E402 (the root is not on the path before)

WIDTH = 108
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "font-family: Fira Code, monospace;", f"font-family: {_FONTS};"
)
_COLOURS = [(240, 113, 103), (108, 200, 144), (226, 180, 85), (116, 170, 240), (200, 146, 230), (94, 200, 210)]
_DARK, _LIGHT, _GREY, _WHITE = (20, 24, 29), (222, 228, 234), (125, 135, 146), (255, 255, 255)
_THEME = TerminalTheme(_DARK, _LIGHT, [_DARK, *_COLOURS, _LIGHT], [_GREY, *_COLOURS, _WHITE])


class Last:
    """In place of a live display: only what it shows in the end."""

    def __init__(self, console: Console, **_: Any) -> None:
        self._console, self._shown = console, Text()

    def __enter__(self) -> Self:
        return self

    def update(self, shown: Any, **_: Any) -> None:
        self._shown = shown

    def __exit__(self, *_: object) -> None:
        self._console.print(self._shown)


def main() -> None:
    kept = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")

    def command(environment: Mapping[str, str], title: str, *arguments: str) -> None:
        kept.print(f"\n[bold]{title}[/]  [dim]gatepost {' '.join(arguments)}[/]")
        seen = dict(environment) | {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
        done = subprocess.run(  # noqa: S603 (our own command)
            [sys.executable, "-m", "gatepost", *arguments], env=seen, check=True, capture_output=True, text=True
        )
        kept.print(Text.from_ansi(done.stdout.strip()))

    os.chdir(DOCS.parent)
    kept.print("[green]$[/] make demo\n")
    demo.console, demo.Live, demo.command = kept, Last, command  # type: ignore[assignment,attr-defined]
    demo.main()
    kept.print()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(kept.export_svg(title="make demo", theme=_THEME, code_format=_FORMAT, unique_id="demo"), "utf-8")


if __name__ == "__main__":
    main()
