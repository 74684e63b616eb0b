"""openid-client of npm, unchanged, completes its flows."""

from tests.interop.every_client import EveryClient


class TestOpenidClient(EveryClient):
    script = "openid_client.mjs"
