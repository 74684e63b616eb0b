"""Draws the diagrams of the pages as SVG from the tables of the code. `make docs` writes them.

States, transitions, checks and chores come from the code; their positions are defined here. A state or a transition
without a position is an error, so a diagram is never incomplete.
"""

import ast
import asyncio
import inspect
from collections.abc import Callable, Iterable
from html import escape
from typing import NamedTuple

from gatepost.oauth.authorize import request
from gatepost.run import chores, supervisor
from gatepost.settings import Settings
from gatepost.webhooks import deliveries

_STYLE = """
  .paper { fill: #ffffff } .box { fill: #f4f6f8; stroke: #5b6672 } .end { fill: #e8f0ec; stroke: #2f6b4f }
  .line { stroke: #5b6672; fill: none } .head { fill: #5b6672 } .dashed { stroke-dasharray: 5 4 }
  text { fill: #1d2630; font: 14px ui-sans-serif, system-ui, sans-serif } .name { font-weight: 600 }
  .code { font-family: ui-monospace, monospace; font-size: 13px } .small { font-size: 12px; fill: #4a5561 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14181d } .box { fill: #1f262e; stroke: #8d99a6 } .end { fill: #1b2b24; stroke: #6cb894 }
    .line { stroke: #8d99a6 } .head { fill: #8d99a6 } text { fill: #e4e9ee } .small { fill: #aab5c0 }
  }
"""


class Words(NamedTuple):
    """A line of text; `kind` is its CSS class."""

    text: str
    kind: str = ""


Line = str | Words


class Box(NamedTuple):
    x: int
    y: int
    width: int
    height: int
    lines: tuple[Line, ...] = ()
    kind: str = "box"
    left: bool = False

    def svg(self) -> str:
        place = f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'
        drawing = f'<rect class="{self.kind}" {place} rx="6"/>'
        top = self.y + self.height / 2 - 9.5 * (len(self.lines) - 1) + 5
        x, anchor = (self.x + 14, "start") if self.left else (self.x + self.width // 2, "middle")
        for number, line in enumerate(self.lines):
            drawing += _text(x, top + 19 * number, line, anchor)
        return drawing + "\n"


def _text(x: float, y: float, line: Line, anchor: str = "middle") -> str:
    words = line if isinstance(line, Words) else Words(line)
    kind = f' class="{words.kind}"' if words.kind else ""
    return f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words.text)}</text>'


def _arrow(path: str, name: str = "", *, dashed: bool = False) -> str:
    """Draw an arrow. `name` tells tests which transition it shows."""
    kind = "line dashed" if dashed else "line"
    named = f' data-arrow="{name}"' if name else ""
    return f'<path class="{kind}" d="{path}" marker-end="url(#head)"{named}/>\n'


def _picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<defs>{head}<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect class="paper" width="{width}" height="{height}"/>\n{"".join(parts)}</svg>\n'
    )


# --- the states of a delivery

_STATES = {
    "pending": Box(70, 140, 170, 56, (Words("pending", "name"), Words("due, or waiting", "small"))),
    "held": Box(70, 232, 170, 56, (Words("held", "name"), Words("pending, not sent", "small")), "box dashed"),
    "in_flight": Box(420, 140, 160, 56, (Words("in_flight", "name"), Words("attempt in progress", "small"))),
    "failed": Box(770, 30, 130, 50, (Words("failed", "name"),), "end"),
    "succeeded": Box(770, 143, 130, 50, (Words("succeeded", "name"),), "end"),
    "cancelled": Box(770, 256, 130, 50, (Words("cancelled", "name"),), "end"),
}
_MOVES: dict[tuple[str, str], tuple[str, tuple[int, int, str]]] = {
    ("pending", "in_flight"): ("M240 158H416", (328, 150, "a worker claims it")),
    ("in_flight", "pending"): ("M420 180H244", (332, 198, "failed: retry later")),
    ("in_flight", "succeeded"): ("M580 168H766", (672, 160, "2xx")),
    ("in_flight", "failed"): ("M520 140 C545 96 660 68 766 62", (652, 108, "last attempt, or 410")),
    ("in_flight", "cancelled"): ("M520 196 C545 244 660 268 766 274", (668, 236, "no longer needed")),
    ("pending", "failed"): ("M140 140 C150 40 460 34 766 46", (400, 34, "held for too long")),
    ("pending", "cancelled"): ("M232 196 C270 300 520 318 766 294", (420, 322, "no longer needed")),
}


def delivery_states() -> str:
    """Draw TRANSITIONS. `held` is how a stopped `pending` delivery is shown, so it has no arrows of its own."""
    moves = [
        (state, to) for state, others in deliveries.TRANSITIONS.items() if state != "held" for to in sorted(others)
    ]
    parts = ['<circle class="head" cx="30" cy="168" r="6"/>', _arrow("M36 168H66"), _arrow("M140 232V200", dashed=True)]
    for state, to in moves:
        path, (x, y, words) = _MOVES[state, to]
        parts += [_arrow(path, f"{state}-{to}"), _text(x, y, Words(words, "small")) + "\n"]
    parts += [_STATES[state].svg() for state in deliveries.TRANSITIONS]
    return _picture(930, 340, "The states of a delivery and their transitions", parts)


# --- an authorization, check by check


_SENT = "with a signed interaction; a cookie binds it to this browser"
_BACK = "and sends the browser back with a signed handoff"
_DONE = "the consent and its ledger entry are committed first"


def authorize() -> str:
    """Draw CHECKS. An error before them is not redirected; an error in them goes back to the client."""
    names = [check.__name__ for check in request.CHECKS]
    listed = [Words(f"{number}. {name}", "code") for number, name in enumerate(names, 1)]
    half = (len(listed) + 1) // 2
    tall = 56 + 21 * half
    checks = f'<rect class="box" x="40" y="176" width="560" height="{tall}" rx="6"/>'
    checks += _text(320, 200, Words("checks of the request, in order", "name"))
    for number, line in enumerate(listed):
        column, row = divmod(number, half)
        checks += _text(56 + 275 * column, 226 + 21 * row, line, "start")
    y = 176 + tall + 34
    steps = [
        Box(40, 16, 560, 44, (Words("the browser requests /oauth/authorize", "name"),)),
        Box(40, 94, 560, 48, (Words("client_id and redirect_uri", "name"),)),
        Box(40, y, 560, 62, (Words("303 to the account's login_url", "name"), _SENT)),
        Box(40, y + 96, 560, 62, (Words("the login application signs the person in", "name"), _BACK)),
        Box(40, y + 192, 560, 48, (Words("check of the handoff: browser, signature, times, scope, person", "name"),)),
        Box(40, y + 274, 560, 62, (Words("303 to the client with code, state and iss", "name"), _DONE), "end"),
    ]
    ends = [
        (118, ("400, without a", "redirect")),
        (176 + tall // 2, ("back to redirect_uri", "with error, state, iss")),
        (y + 216, ("400: error of the", "login application")),
    ]
    tops = [60, 142, 176 + tall, y + 62, y + 158, y + 240]
    parts = [*(_arrow(f"M320 {top}V{top + 30}") for top in tops), checks + "\n", *(step.svg() for step in steps)]
    for height, words in ends:
        parts.append(_arrow(f"M600 {height}H646", dashed=True))
        parts.append(Box(650, height - 29, 190, 58, words).svg())
    return _picture(860, y + 352, "The checks of an authorization request and its outcomes", parts)


# --- processes


def every_chore() -> list[tuple[str, float]]:
    """Return the name and the interval of each chore, from the table in `chores.run`."""
    nodes = ast.walk(ast.parse(inspect.getsource(chores.run)))
    [loop] = [node for node in nodes if isinstance(node, ast.For)]
    intervals = []
    for pair in loop.iter.elts:  # type: ignore[attr-defined]
        every, what = pair.elts
        seconds = every.value if isinstance(every, ast.Constant) else getattr(chores, ast.unparse(every))
        intervals.append((ast.unparse(what).partition("(")[0].lower().replace("_", " "), float(str(seconds))))
    return intervals


def processes() -> str:
    """Draw the supervisor with its chores, the processes that it starts, and the default addresses."""
    settings = Settings()
    kinds = [child.kind for child in supervisor._children(settings, "", asyncio.Event())]
    names = [name for name, _ in every_chore()]
    cut = (len(names) + 1) // 2
    parent = Box(
        210, 16, 590, 104,
        (
            Words("supervisor", "name"),
            "starts the other processes, and restarts those that end",
            Words(f"chores: {', '.join(names[:cut])},", "small"),
            Words(", ".join(names[cut:]), "small"),
        ),
    )  # fmt: skip
    labels = {
        "web": ("web process", "× workers", f"at {settings.host}:{settings.port}"),
        "deliveries": ("delivery process", "× deliverers", "sends webhooks"),
        "operations": ("operations process", "console, metrics, events", f"at {settings.ops_host}:{settings.ops_port}"),
    }
    parts = [parent.svg()]
    for number, kind in enumerate(sorted(kinds, key=list(labels).index)):
        x = 210 + 200 * number
        name, *does = labels[kind]
        parts += [_arrow(f"M{x + 95} 120V176", dashed=True)]
        parts += [Box(x, 180, 190, 84, (Words(name, "name"), *does)).svg(), _arrow(f"M{x + 95} 264V300")]
    words = ("the store: SQLite in the data directory, or PostgreSQL", "related changes share one commit")
    parts += [
        Box(210, 304, 590, 60, (Words(words[0], "name"), words[1]), "end").svg(),
        Box(16, 188, 140, 66, ("clients, APIs", "and browsers")).svg(), _arrow("M156 221H206"),
        _arrow("M854 221H804"), Box(858, 188, 140, 66, ("operators", "and publishers")).svg(),
    ]  # fmt: skip
    return _picture(1010, 380, "The processes of a Gatepost service and their store", parts)


PICTURES: dict[str, Callable[[], str]] = {
    "delivery-states": delivery_states,
    "authorize": authorize,
    "processes": processes,
}
