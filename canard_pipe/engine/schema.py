"""Install the schema, migrate an older one, or refuse the file. Migrations are numbered and go forward only (L4)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from canard_pipe.engine import statements
from canard_pipe.engine.store import Store
from canard_pipe.errors import SchemaError, StorageError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from schema ``version - 1`` to ``version``: SQL statements, each ended by ``;`` at a line's end."""

    version: int
    sql: str


def released() -> tuple[Migration, ...]:
    """Return the migrations of this release, sql/migrations/NNNN.sql, from the first on."""
    folder = resources.files("canard_pipe.engine") / "sql" / "migrations"
    return tuple(
        Migration(version, (folder / f"{version:04}.sql").read_text(encoding="utf-8"))
        for version in range(1, VERSION + 1)
    )


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


def open_store(
    connect: Callable[[], Store], now_us: int, migrations: Sequence[Migration] | None = None
) -> Store:
    """Open a store and bring it to the newest of ``migrations``, those of this release by default (F1, S41).

    All steps are one transaction: a migration that fails leaves the file as it was. A file that has an
    older schema is copied first, beside it and while nothing has it open: ``state.duckdb.schema-1.bak``. The caller
    owns the file. Raises SchemaError for a newer schema and for what is not ours, StorageError.
    """
    store = connect()
    try:
        found = found_version(store)
        newest = VERSION if migrations is None else migrations[-1].version
        if found is not None and found != newest:
            check(found, newest)
            if store.path is not None:
                store.close()
                _copy(store.path, found)
                store = connect()
        if found != newest:
            _migrate(store, found or 0, released() if migrations is None else migrations, now_us)
    except BaseException:
        store.close()
        raise
    return store


def check(version: int, newest: int = VERSION) -> None:
    """Raise SchemaError if ``version`` is none that can be migrated; then nothing must be written to the file."""
    if not 1 <= version <= newest:
        reason = "a newer release made it; update canard-pipe" if version > newest else "no release has made it"
        raise SchemaError(
            f"the file has schema {version}, this release uses {newest}: {reason}; it was not changed", version
        )


def check_readable(version: int) -> None:
    """Raise SchemaError unless ``version`` is the one that the statements of this release are written for."""
    check(version)
    if version < VERSION:
        raise SchemaError(
            f"the file has schema {version}, this release uses {VERSION}: the next run brings it up to date", version
        )


def _migrate(store: Store, found: int, migrations: Sequence[Migration], now_us: int) -> None:
    with store.transaction():
        for migration in migrations:
            if migration.version <= found:
                continue
            for statement in statements.split(migration.sql):
                store.script(statement.sql)
            store.script(
                "INSERT INTO canard_absurd.schema_version VALUES ($version, make_timestamp($now_us))",
                version=migration.version,
                now_us=now_us,
            )


def _copy(path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.schema-{version}.bak")
    partial = copy.with_name(f"{copy.name}.partial")
    try:
        if path.with_name(f"{path.name}.wal").exists():
            raise OSError("a log is left beside it that DuckDB has not taken into the file")
        shutil.copyfile(path, partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(copy)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"the file has schema {version} and was not migrated, since it cannot be copied first: {error}",
            operation="open",
        ) from error
