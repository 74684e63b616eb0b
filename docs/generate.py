"""Writes the generated parts of the pages, the page of standards and the diagrams: `make docs` runs it.

Names, defaults, bounds and flags come from the code. Some meanings are written in the pages and are kept; a new row has
an empty meaning until someone writes it, and a test fails until then.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

sys.path.insert(0, str(Path(__file__).parent))
import diagrams
import limits
import standards

from gatepost import accounts, settings
from gatepost.cli import endpoint
from gatepost.cli.main import all_commands
from gatepost.core import json_schema
from gatepost.core.errors import ERRORS
from gatepost.core.members import MemberTable, default_text
from gatepost.egress import address_guard, transfer
from gatepost.ledger import entries
from gatepost.oauth import client_grants, clients, discovery, scopes, token_endpoint
from gatepost.oauth.authorize import request
from gatepost.oauth.grants import GRANTS
from gatepost.run import capacity
from gatepost.webhooks import decide, deliveries, endpoints, peers, plan, schedule, subscriptions, worker
from gatepost.webhooks.claim import LEASE

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
CODE = DOCS.parent / "gatepost"
MEMBER_TABLES = [
    clients.MEMBERS,
    client_grants.GRANT_MEMBERS,
    scopes.MEMBERS,
    endpoints.MEMBERS,
    subscriptions.MEMBERS,
    subscriptions.REPLAY_MEMBERS,
]
COMMON = ("name", "remote", "profile", "data", "database", "config", "as_json")  # described once
_WITH_COMMON = endpoint.endpoint.commands["list"]  # has these options and no other
_PART = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head, *_ = lines = [list(columns), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(head))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def meanings(part: str) -> dict[str, str]:
    """Return the last column of the table in the page, by the name in its first column."""
    rows = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in part.splitlines() if line.startswith("| `")]
    return {row[0].strip("` "): row[-1].strip() for row in rows}


def service_settings(part: str) -> str:
    meaning = meanings(part)
    flags = {option.name: _longest(option) for option in all_commands().commands["serve"].params}
    rows = []
    for field in msgspec.structs.fields(settings.Settings):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        flag = flags.get(field.name)
        rows.append((f"`{field.name}`", _value(default), f"`{flag}`" if flag else "–", meaning.get(field.name, "")))
    return table(("setting", "default", "flag", "meaning"), rows)


def account_settings(part: str) -> str:
    meaning = meanings(part)
    rows = [
        (f"`{name}`", _value(_written(setting)), setting.bounds, meaning.get(name, ""))
        for name, setting in accounts.SETTINGS.items()
    ]
    return table(("setting", "default", "bounds", "meaning"), rows)


def _written(setting: accounts.Setting) -> str:
    """Return the default as an operator would write it."""
    return "" if setting.default is None else setting.write(setting.default)


def _duration(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0 and seconds // size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _value(value: Any) -> str:
    if value in (None, "", [], {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def errors(_part: str) -> str:
    rows = [(f'<a id="{code}"></a>`{code}`', str(meaning.status), meaning.meaning) for code, meaning in ERRORS.items()]
    return table(("code", "status", "meaning"), rows)


def states(part: str) -> str:
    meaning = meanings(part)
    rows = [
        (f"`{state}`", _names(sorted(to)) or "–", meaning.get(state, ""))
        for state, to in deliveries.TRANSITIONS.items()
    ]
    return table(("status", "goes to", "meaning"), rows)


def ends(_part: str) -> str:
    rows = [(f"`{reason}`", f"`{status}`", means) for reason, (status, means) in deliveries.ENDS.items()]
    return table(("ended_reason", "status", "meaning"), rows)


def because(_part: str) -> str:
    return table(("because", "meaning"), [(f"`{name}`", f"{means}.") for name, means in deliveries.BECAUSE.items()])


def failures(part: str) -> str:
    meaning = meanings(part)
    return table(("failure", "meaning"), [(f"`{name}`", meaning.get(name, "")) for name in deliveries.FAILURES])


def special_addresses(_part: str) -> str:
    """Group the networks by purpose, in the order in which the guard checks them."""
    networks: dict[tuple[str, bool], list[str]] = {}
    for special in address_guard.SPECIAL:
        networks.setdefault((special.description, special.in_dev), []).append(f"`{special.network}`")
    rows = [(what, ", ".join(names), "yes" if in_dev else "no") for (what, in_dev), names in networks.items()]
    return table(("what", "networks", "permitted with --dev"), rows)


def delivery_numbers(_part: str) -> str:
    slots, hours = schedule.SLOTS, int(endpoints.DISABLE_AFTER.total_seconds()) // 3600
    rows = [
        ("concurrent attempts in one worker", f"{slots}"),
        ("of these, to one endpoint", f"its window, at most {slots // 2}"),
        ("of these, for one account", f"{slots * 3 // 4}"),
        ("of each share, for accounts with few attempts in progress", f"{slots // 8}"),
        (
            "of these, for first attempts and for retries",
            f"{slots * 3 // 4} each, so that a quarter is always left for the other",
        ),
        (
            "of these, to all endpoints whose window is 1",
            f"{slots // 4} in total, {(slots // 4 - slots // 32) // 2} for one account, fewer if others use them",
        ),
        ("deliveries claimed in one commit", f"{schedule.BATCH}"),
        ("lease", f"the endpoint's `timeout` plus {_duration(int(LEASE.total_seconds()))}"),
        ("jitter", f"{plan._JITTER:.0%} in either direction"),
        ("longest `Retry-After`, if the endpoint does not set `max_retry_after`", _duration(endpoints.MAX_RETRY_AFTER)),
        ("consecutive interruptions that count as an attempt", f"{decide.INTERRUPTIONS}"),
        ("time without a success until an endpoint is disabled", f"{hours}h"),
        ("heartbeat interval of a worker", f"{peers.BEAT_EVERY:g}s"),
        ("time without a new heartbeat after which a worker is considered dead", f"{peers.DEAD_AFTER // 1000}s"),
        ("polling interval of the queue", f"{worker.POLL_EVERY:g}s"),
        ("time that a stopping worker waits", f"for the longest attempt in progress, plus {worker.SETTLE_FOR:g}s"),
        ("response body that is read", f"{transfer.MAX_READ // 1024} KiB"),
        ("response body that is stored", f"{transfer.MAX_STORED // 1024} KiB"),
        ("cache time of resolved addresses", f"{transfer.NAME_TTL}s"),
    ]
    return table(("number", "value"), rows)


def events(part: str) -> str:
    """List the event types with an anchor each. The other two columns are written in the page."""
    rows = {cells[0]: cells[1:] for cells in _table_rows(part)}
    return table(
        ("type", "about", "written when"),
        [(f'<a id="{name}"></a>`{name}`', *rows.get(name, ["", ""])) for name in entries.TYPES],
    )


def _table_rows(part: str) -> Iterator[list[str]]:
    """Yield the rows of the table in the page, the first cell without its anchor and backticks."""
    for line in part.splitlines():
        first, *rest = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]] or [""]
        named = re.search(r"`([^`]+)`", first)
        if named:
            yield [named[1], *rest]


def event_data(_part: str) -> str:
    rows = [(f"`{name}`", f"`{json.dumps(data, ensure_ascii=False)}`") for name, data in entries.TYPES.items()]
    return table(("type", "example of `data`"), rows)


def checks(_part: str) -> str:
    """List the checks of an authorization request in order, with their error codes."""
    rows = [
        (str(number), f"`{check.__name__}`", _first_words(check), _names(_codes(check)) or "–")
        for number, check in enumerate(request.CHECKS, 1)
    ]
    return table(("order", "check", "condition", "error"), rows)


def _codes(function: Callable[..., Any]) -> list[str]:
    """Return the error codes that the source of a check or rule names."""
    source = inspect.getsource(function)
    found = re.findall(r'Refusal\(\s*"(\w+)"', source)
    found += ["invalid_request"] * ("_invalid(" in source)
    found += ["invalid_scope"] * ("_invalid_scope(" in source) + ["invalid_dpop_proof"] * ("too_weak(" in source)
    return list(dict.fromkeys(code for code in ERRORS if code in found))


def _first_words(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def rules(_part: str) -> str:
    """List the rules of all grant types in one table, in the order in which they are applied."""
    short = {name: name.rpartition(":")[2] for name in GRANTS}
    named: dict[str, Any] = {}
    for grant in GRANTS.values():
        for place, rule in enumerate(grant.rules):
            before = list(named).index(grant.rules[place - 1].__name__) + 1 if place else 0
            if rule.__name__ not in named:
                listed = list(named.items())
                named = dict([*listed[:before], (rule.__name__, rule), *listed[before:]])
    rows = []
    for name, rule in named.items():
        grants = [short[grant_type] for grant_type, grant in GRANTS.items() if rule in grant.rules]
        applies_to = "all" if len(grants) == len(GRANTS) else _names(grants)
        rows.append((f"`{name}`", _first_words(rule), _names(_codes(rule)) or "–", applies_to))
    last, code = token_endpoint.token_fits, token_endpoint.TOO_LARGE.code
    rows.append((f"`{last.__name__}`", _first_words(last), f"`{code}`", "all"))
    return table(("rule", "condition", "error", "grant types"), rows)


def openid_configuration(_part: str) -> str:
    return _document(discovery.openid_configuration(settings.Settings().issuer))


def protected_resource(_part: str) -> str:
    return _document(discovery.protected_resource(settings.Settings().issuer))


def _document(document: dict[str, Any]) -> str:
    """Format JSON with one member per line; a long list takes several lines."""
    lines = []
    for name, value in document.items():
        text = json.dumps(value)
        if isinstance(value, list) and len(text) > 80:
            inner = textwrap.wrap(text[1:-1], 92, break_on_hyphens=False, break_long_words=False)
            text = "[\n" + "".join(f"    {line}\n" for line in inner) + "  ]"
        lines.append(f'  "{name}": {text}')
    return "```json\n{\n" + ",\n".join(lines) + "\n}\n```\n"


def chores(part: str) -> str:
    meaning = meanings(part)
    rows = [(f"`{name}`", f"{every:g} s", meaning.get(name, "")) for name, every in diagrams.every_chore()]
    return table(("chore", "every", "does"), rows)


def code_map(_part: str) -> str:
    """Describe the folders and files of the package by the first paragraph of their docstrings."""
    rows = []
    for path in sorted(CODE.iterdir(), key=lambda entry: (entry.is_file(), entry.name)):
        if (path / "__init__.py").is_file():
            rows.append((f"`{path.name}/`", _first_paragraph(path / "__init__.py")))
        elif path.suffix == ".py" and not path.name.startswith("__"):
            rows.append((f"`{path.name}`", _first_paragraph(path)))
    return table(("in `gatepost/`", "contents"), rows)


def _first_paragraph(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def command_pages(_part: str) -> str:
    return "\n".join(_command_page(name, command) for name, command in every_command())


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, with its full name."""
    for name, command in sorted(all_commands().commands.items()):
        if isinstance(command, click.Group):
            for inner in command.commands:
                yield f"{name} {inner}", command.commands[inner]
        else:
            yield name, command


def _command_page(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"gatepost {name}")
    usage = " ".join([f"gatepost {name}", *command.collect_usage_pieces(context)])
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or "")).replace("gatepost:", "`gatepost:`")
    options = [option for option in command.params if isinstance(option, click.Option)]
    own = [_option_row(option, context) for option in options if not _is_common(option)]
    common = ", ".join(f"`{_longest(option)}`" for option in options if _is_common(option))
    parts = [f"## {name}", f"```text\n{usage}\n```", text, table(("option", "meaning"), own).strip() if own else ""]
    return "\n\n".join(part for part in [*parts, f"Common options: {common}." if common else ""] if part) + "\n"


def common_options(_part: str) -> str:
    context = click.Context(_WITH_COMMON)
    options = {option.name: option for option in _WITH_COMMON.params if isinstance(option, click.Option)}
    return table(("option", "meaning"), [_option_row(options[name], context) for name in COMMON])


def _is_common(option: click.Option) -> bool:
    """Compare the help text too: `--data` of `event publish` is another option."""
    return any(
        option.name == common.name and option.help == getattr(common, "help", "") for common in _WITH_COMMON.params
    )


def _option_row(option: click.Option, context: click.Context) -> tuple[str, str]:
    words, meaning = option.get_help_record(context) or ("", "")
    return f"`{words}`".replace("|", "\\|"), " ".join(meaning.replace("|", "\\|").split()) or "–"


def _longest(option: click.Parameter) -> str:
    return max(option.opts, key=len)


def _limits(name: str) -> Callable[[str], str]:
    return lambda _part: table(("limit", "value", "if exceeded"), limits.LIMITS[name])


def _members(members: MemberTable) -> Callable[[str], str]:
    """Describe the members that a request may have."""
    rows = [
        (
            f"`{member.name}`",
            _member_value(member.schema),
            "required" if member.required else default_text(members, member) or "–",
            member.description,
        )
        for member in members.request.values()
    ]
    return lambda _part: table(("member", "value", "default", "meaning"), rows)


def capacity_costs(_part: str) -> str:
    names = ("token", "refresh", "event", "delivery", "seal")
    costs = [getattr(capacity, name.upper()) for name in names]
    labels = {
        "web": "CPU of a web process, µs", "operations": "CPU of an operations process, µs",
        "deliverer": "CPU of a deliverer, µs", "sealing": "CPU of the supervisor, µs",
        "postgres": "CPU of PostgreSQL, µs", "wal": "WAL, bytes", "stored": "tables and indexes, bytes",
        "sent": "sent to clients and receivers, bytes", "received": "received, bytes",
    }  # fmt: skip
    rows = [
        (labels[member], *(f"{getattr(cost, member):g}" if getattr(cost, member) else "–" for cost in costs))
        for member in capacity.Cost._fields
    ]
    return table(("cost of one", *names), rows)


def _returned(members: MemberTable) -> Callable[[str], str]:
    """Describe the members that only a response has."""
    rows = [(f"`{member.name}`", member.description) for member in members.members if member.direction == "response"]
    return lambda _part: table(("member of the response", "meaning"), rows)


def _member_value(schema: dict[str, Any]) -> str:
    text = _names(schema["enum"]) if "enum" in schema else json_schema.expectation(schema)
    return text.replace("|", "\\|")


PARTS: dict[str, Callable[[str], str]] = {
    "service settings": service_settings,
    "account settings": account_settings,
    "errors": errors,
    "states": states,
    "ends": ends,
    "because": because,
    "failures": failures,
    "special addresses": special_addresses,
    "delivery numbers": delivery_numbers,
    "common options": common_options,
    "commands": command_pages,
    "events": events,
    "event data": event_data,
    "checks": checks,
    "rules": rules,
    "openid configuration": openid_configuration,
    "protected resource": protected_resource,
    "chores": chores,
    "capacity costs": capacity_costs,
    "code map": code_map,
}
PARTS |= {f"members of {members.noun}": _members(members) for members in MEMBER_TABLES}
PARTS |= {
    f"response members of {members.noun}": _returned(members)
    for members in MEMBER_TABLES
    if any(member.direction == "response" for member in members.members)
}
PARTS |= {f"limits of {name}": _limits(name) for name in limits.LIMITS}


def current(text: str) -> str:
    """Return the text of a page with its generated parts up to date."""
    return _PART.sub(lambda part: part[1] + PARTS[part[2]](part[3]) + part[4], text)


def pages() -> list[Path]:
    every = [DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in every if "<!-- generated: " in page.read_text("utf-8")]


def main() -> None:
    fresh = {page: current(page.read_text("utf-8")) for page in pages()}
    fresh |= {IMAGES / f"{name}.svg": draw() for name, draw in diagrams.PICTURES.items()}
    fresh[standards.PAGE] = standards.page()
    for file, text in fresh.items():
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            sys.stdout.write(f"rewrote {file.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
