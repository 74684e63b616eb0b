"""Storage: units of work and their commits, on SQLite and PostgreSQL. It knows no noun."""
