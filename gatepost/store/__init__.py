"""Storage: units of work and their commits, SQLite and PostgreSQL, SQL text, migrations. `tx.py` is its interface."""
