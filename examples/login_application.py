"""A login application: it signs people in for Gatepost, which has no login page of its own.

    jwks                       print the public key set, for `gatepost account set`
    serve --account acc_…      the application: Gatepost sends browsers here, and takes them back
    offboard ada --account …   ada has left: lock her out here, and end there what she allowed

Two JWTs pass through the browser: `interaction`, which Gatepost signs, and `handoff`, which is signed here.
PEOPLE, sessions and what people allowed stand for what your own application has.
"""
# ruff: noqa: S310, TID251

import argparse
import json
import secrets
import time
from collections import defaultdict
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet

PASSWORD = "correct horse"
PEOPLE = {"ada": {"name": "Ada Lovelace", "email": "ada@example.com"}, "grace": {"name": "Grace Hopper"}}


class Session(NamedTuple):
    person: str
    since: int  # when the password was given


SESSIONS: dict[str, Session] = {}  # by the cookie
ALLOWED: dict[tuple[str, str], set[str]] = defaultdict(set)  # the scopes, by person and client


class Pages(BaseHTTPRequestHandler):
    issuer = account = url = ""
    data: Path

    def do_GET(self) -> None:
        """Gatepost sent the browser here. A session that will do, and consent given before, need no page."""
        sent = parse_qs(urlsplit(self.path).query)
        if asked := self.read(sent):
            session, prompt = self.session(asked), asked.get("prompt", "").split()
            scopes = {each["name"] for each in asked["scopes"]}
            if session and "consent" not in prompt and scopes <= ALLOWED[session.person, asked["client_id"]]:
                self.hand_over(asked, session, scopes)
            elif "none" in prompt:
                self.send_back(asked, error="consent_required" if session else "login_required")
            else:
                self.show_form(sent["interaction"][0], asked, session)

    def do_POST(self) -> None:
        """The form came back."""
        size = min(int(self.headers.get("content-length", 0)), 1 << 16)
        sent = parse_qs(self.rfile.read(size).decode(errors="replace"))
        own = "{0.scheme}://{0.netloc}".format(urlsplit(self.url))
        if self.headers.get("origin", own) != own:  # the form of another site, with this one's cookie
            self.answer(403, "This form is not from here.")
        elif asked := self.read(sent):
            session, cookie = self.session(asked), ""
            name, password = (sent.get(each, [""])[0] for each in ("name", "password"))
            right = self.is_here(name) and secrets.compare_digest(password.encode(), PASSWORD.encode())
            if "allow" not in sent:
                self.send_back(asked, error="access_denied", error_description="the person said no")
            elif not session and not right:
                self.show_form(sent["interaction"][0], asked, None, "Wrong name or password.")
            else:
                if session is None:
                    session, cookie = Session(name, int(time.time())), secrets.token_urlsafe(32)
                    SESSIONS[cookie] = session
                scopes = {each["name"] for each in asked["scopes"]} & set(sent.get("scope", []))
                ALLOWED[session.person, asked["client_id"]] |= scopes
                self.hand_over(asked, session, scopes, cookie)

    def read(self, sent: dict[str, list[str]]) -> dict[str, Any] | None:
        """What Gatepost asks, if it is Gatepost that asks, for this account, here and now."""
        try:
            with urlopen(f"{self.issuer}/oauth/jwks", timeout=10) as answer:  # sign-ins are rare: no cache
                keys = KeySet.import_key_set(json.load(answer))
            found = jwt.decode(sent.get("interaction", [""])[0], keys, algorithms=["ES256"])
            wanted = {"iss": self.issuer, "aud": self.url, "account": self.account}
            rules: Any = {name: {"essential": True, "value": value} for name, value in wanted.items()}
            jwt.JWTClaimsRegistry(leeway=10, exp={"essential": True}, **rules).validate(found.claims)
            if found.header.get("typ") != "gatepost-interaction+jwt":
                raise ValueError("it is another kind of token")
        except (JoseError, ValueError, OSError) as error:
            self.answer(400, f"This sign-in cannot go on: {escape(str(error))}. Start again at the application.")
            return None
        return found.claims

    def session(self, asked: dict[str, Any]) -> Session | None:
        """The browser's session, if the client can be content with it."""
        cookie = SimpleCookie(self.headers.get("cookie", "")).get("login_session")
        found = SESSIONS.get(cookie.value) if cookie else None
        if not found or not self.is_here(found.person) or asked.get("sub", found.person) != found.person:
            return None
        again = {"login", "select_account"}.intersection(asked.get("prompt", "").split())
        return None if again or found.since < asked["iat"] - asked.get("max_age", asked["iat"]) else found

    def is_here(self, person: str) -> bool:
        return person in PEOPLE and not (self.data / f"{person}.left").exists()

    def hand_over(self, asked: dict[str, Any], session: Session, scopes: set[str], cookie: str = "") -> None:
        said = {"sub": session.person, "auth_time": session.since, "amr": ["pwd"], "scope": " ".join(sorted(scopes))}
        nothing = {"error": "access_denied", "error_description": "the person allowed nothing"}
        self.send_back(asked, cookie, **(said | {"claims": PEOPLE[session.person]} if scopes else nothing))

    def send_back(self, asked: dict[str, Any], cookie: str = "", **said: Any) -> None:
        token = self.sign("gatepost-handoff+jwt", interaction=asked["jti"], **said)
        self.answer(303, "", cookie, f"{self.issuer}/oauth/authorize?{urlencode({'handoff': token})}")

    @classmethod
    def sign(cls, typ: str, **claims: Any) -> str:
        now, key = int(time.time()), own_key(cls.data)
        frame = {"iss": cls.account, "aud": cls.issuer, "iat": now, "exp": now + 60, "jti": secrets.token_urlsafe()}
        return jwt.encode({"alg": "ES256", "typ": typ, "kid": key.kid}, frame | claims, key)

    def show_form(self, interaction: str, asked: dict[str, Any], session: Session | None, wrong: str = "") -> None:
        hint = asked.get("sub") or asked.get("login_hint", "")
        who = f"<p>Signed in as {escape(session.person)}.</p>" if session else FIELDS.format(escape(hint))
        scopes = "".join(SCOPE.format(escape(each["name"]), escape(each["description"])) for each in asked["scopes"])
        self.answer(200, FORM.format(escape(asked["client_name"]), wrong, escape(interaction), who, scopes))

    def answer(self, status: int, body: str, cookie: str = "", location: str = "") -> None:
        secure = "; Secure" if self.url.startswith("https:") else ""
        headers = {
            "location": location,
            "set-cookie": cookie and f"login_session={cookie}; Path=/; HttpOnly; SameSite=Lax{secure}",
            "cache-control": "no-store",
            "referrer-policy": "same-origin",  # the interaction is in the address
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
            "content-type": "text/html; charset=utf-8",
        }
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write((PAGE + body).encode() if body else b"")

    def log_message(self, *_: Any) -> None:
        """Not the addresses: they hold interactions."""


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign in</title><style>body{font:1rem/1.5 system-ui;max-width:24rem;margin:3rem auto;padding:0 1rem}
label{display:block;margin:.5rem 0}button{font:inherit;padding:.3rem 1rem;margin:1rem .5rem 0 0}</style>"""
FORM = """<h1>{} asks for access</h1><p role="alert">{}</p>
<form method="post"><input type="hidden" name="interaction" value="{}">{}<fieldset><legend>It may</legend>{}</fieldset>
<button name="allow" value="yes">Allow</button><button name="deny" value="yes" formnovalidate>Deny</button></form>"""
FIELDS = """<label>Name <input name="name" value="{}" autocomplete="username" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>"""
SCOPE = '<label><input type="checkbox" name="scope" value="{0}" checked> {1} <small>({0})</small></label>'


def own_key(data: Path) -> ECKey:
    """Made once. Gatepost is given its public half."""
    file = data / "key.json"
    if not file.exists():
        data.mkdir(mode=0o700, exist_ok=True)
        file.touch(0o600)
        file.write_text(json.dumps(ECKey.generate_key("P-256", auto_kid=True).as_dict(private=True)))
    return ECKey.import_key(json.loads(file.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["jwks", "serve", "offboard"])
    parser.add_argument("person", nargs="?", choices=PEOPLE, help="who has left")
    parser.add_argument("--account", help="the account's id, acc_…")
    parser.add_argument("--issuer", default="http://127.0.0.1:8080", help="the base URL of Gatepost")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 in a container")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--data", type=Path, default=Path("login-data"), help="where its key is kept")
    given = parser.parse_args()
    Pages.issuer, Pages.account, Pages.data = given.issuer, given.account, given.data
    Pages.url = f"http://127.0.0.1:{given.port}/login"
    if given.command == "jwks":
        print(json.dumps({"keys": [own_key(given.data).as_dict(private=False)]}))
    elif not given.account:
        parser.error("whose login application is this? --account acc_…")
    elif given.command == "offboard":
        (given.data / f"{given.person}.left").touch()
        form = urlencode({"token": Pages.sign("gatepost-revoke+jwt", sub=given.person)})
        urlopen(f"{given.issuer}/oauth/revoke", form.encode(), timeout=10).close()
        print(f"{given.person} is locked out, and what {given.person} allowed has ended.")
    else:
        server = ThreadingHTTPServer((given.host, given.port), Pages)
        print(f"signing in at {Pages.url}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
