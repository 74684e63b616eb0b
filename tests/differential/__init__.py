"""Bad requests, the same ones to Gatepost and to node oidc-provider: where they are answered differently, and why."""

from pathlib import Path

PROVIDER = Path(__file__).parent / "provider.mjs"
