"""Runs `make demo` and saves its output as images/demo.svg: `.venv/bin/python docs/picture.py`.

The table that the demo redraws is saved as it is at the end. The picture loads no font.
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


class LastFrame:
    """Replaces a live display and prints only what it shows last."""

    def __init__(self, console: Console, **_: Any) -> None:
        self._console, self._frame = console, Text()

    def __enter__(self) -> Self:
        return self

    def update(self, frame: Any, **_: Any) -> None:
        self._frame = frame

    def __exit__(self, *_: object) -> None:
        self._console.print(self._frame)


def main() -> None:
    recording = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")

    def command(environment: Mapping[str, str], title: str, *arguments: str) -> None:
        recording.print(f"\n[bold]{title}[/]  [dim]gatepost {' '.join(arguments)}[/]")
        colored = dict(environment) | {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
        finished = subprocess.run(  # noqa: S603 (a fixed command)
            [sys.executable, "-m", "gatepost", *arguments], env=colored, check=True, capture_output=True, text=True
        )
        recording.print(Text.from_ansi(finished.stdout.strip()))

    os.chdir(DOCS.parent)
    recording.print("[green]$[/] make demo\n")
    demo.console, demo.Live, demo.command = recording, LastFrame, command  # type: ignore[assignment,attr-defined]
    demo.main()
    recording.print()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(
        recording.export_svg(title="make demo", theme=_THEME, code_format=_FORMAT, unique_id="demo"), "utf-8"
    )


if __name__ == "__main__":
    main()
