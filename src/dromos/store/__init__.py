"""One SQL store, two databases. Everything that differs between them is in `sqlite/` and `postgres/`."""
