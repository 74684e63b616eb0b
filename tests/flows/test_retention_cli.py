"""`gatepost account set` with another retention, on PostgreSQL."""

from pathlib import Path

from tests import command


def test_a_new_retention_has_its_tables_at_once(postgres_url: str, tmp_path: Path) -> None:
    """So no rows have to be moved later, while others wait."""
    alone = command.alone(tmp_path / "data", postgres_url)
    alone.cli("store", "migrate")
    alone.cli("account", "create", "acme")
    exists = "SELECT to_regclass('deliveries_90') IS NOT NULL, to_regclass('entries_2555') IS NOT NULL"
    assert alone.execute(exists) == [(False, False)]
    alone.cli("account", "set", "acme", "hold_limit=1d")
    assert alone.execute(exists) == [(False, False)]
    alone.cli("account", "set", "acme", "retention=90d", "audit_retention=2555d")
    assert alone.execute(exists) == [(True, True)]
