"""The benchmarks compare with servers of their own, which must work to be compared with."""

import json

from bench import load, ours


def test_the_limit_of_the_token_rate_issues_tokens() -> None:
    with ours.limit() as target:
        status, body = load.ask(target)
    assert status == 200
    assert json.loads(body)["scope"] == "api:read"
