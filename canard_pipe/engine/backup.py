"""A copy of the open database, made by DuckDB itself: its owner never opens or copies the file by other means."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from canard_pipe.engine.literals import literal
from canard_pipe.engine.store import Store
from canard_pipe.errors import InputError, StorageError


def backup(store: Store, path: Path) -> None:
    """Write what is committed now to a new file ``path``; work goes on meanwhile. See Database.backup.

    The file gets its name when it is whole: a crash leaves at most a file that ends in ``.partial`` beside it.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - links are not followed
    _require_new(path)
    token = uuid.uuid4().hex
    partial = path.with_name(f".{path.name}.{token}.partial")
    alias = f"backup_{token}"
    try:
        _copy(store, partial, alias)
        _name(partial, path)
    except OSError as error:
        raise StorageError(f"cannot write the backup {path}: {error}", operation="backup") from error
    finally:
        for left in (partial, partial.with_name(f"{partial.name}.wal")):
            left.unlink(missing_ok=True)


def _copy(store: Store, partial: Path, alias: str) -> None:
    ((name,),) = store.sql("SELECT current_database()")[1]
    source = '"' + str(name).replace('"', '""') + '"'
    store.sql(f"ATTACH {literal(str(partial))} AS {alias} (STORAGE_VERSION 'v1.5.0')")
    try:
        store.sql(f"COPY FROM DATABASE {source} TO {alias}")  # one transaction: what is committed when it begins
        store.sql(f"CHECKPOINT {alias}")
    finally:
        store.sql(f"DETACH {alias}")
    if partial.with_name(f"{partial.name}.wal").exists():
        raise StorageError("the backup is not whole: DuckDB left a log beside it", operation="backup")


def _name(partial: Path, path: Path) -> None:
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(partial, path)  # unlike a rename it never replaces a file
    except FileExistsError:
        _require_new(path)
        raise
    except OSError:  # a file system without hard links
        _require_new(path)
        partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _require_new(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(f"{path} exists; a backup never replaces a file")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} of the backup is not there")
