"""Install the schema, or check that the file's schema is ours. Migrations are numbered and go forward only."""

from __future__ import annotations

from importlib import resources

from canard_pipe.engine import statements
from canard_pipe.engine.store import Store
from canard_pipe.errors import SchemaError

VERSION = 1


def found_version(store: Store) -> int | None:
    """Return the version of the file's schema; None for a database without any table."""
    rows = store.script(
        "SELECT table_schema = 'canard_absurd' AND table_name = 'schema_version' AS ours "
        "FROM information_schema.tables WHERE table_catalog = current_database()"
    )
    if not rows:
        return None
    if not any(ours for (ours,) in rows):
        raise SchemaError("the file is a DuckDB database of something else; it was not changed", None)
    ((version,),) = store.script("SELECT max(version) FROM canard_absurd.schema_version")
    if version is None:
        raise SchemaError("the file's schema has no version; it was not changed", None)
    return int(version)


def install(store: Store, now_us: int) -> None:
    """Bring an empty database to this version in one transaction (F1); refuse any other version unchanged (S41)."""
    version = found_version(store)
    if version is not None:
        check(version)
        return
    with store.transaction():
        for number in range(1, VERSION + 1):
            file = resources.files("canard_pipe.engine") / "sql" / "migrations" / f"{number:04}.sql"
            for statement in statements.split(file.read_text(encoding="utf-8")):
                store.script(statement.sql)
            store.script(
                "INSERT INTO canard_absurd.schema_version VALUES ($version, make_timestamp($now_us))",
                version=number,
                now_us=now_us,
            )


def check(version: int) -> None:
    """Raise SchemaError unless ``version`` is the one this release uses."""
    if version != VERSION:
        newer = "a newer release made it; update canard-pipe" if version > VERSION else "it is too old"
        raise SchemaError(f"the file has schema {version}, this release uses {VERSION}: {newer}", version)
