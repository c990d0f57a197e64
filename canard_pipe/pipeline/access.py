"""How another terminal looks at a state: over Quack while its owner lives, else in the file, else status.json."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from canard_pipe.engine import literals, statements
from canard_pipe.engine.owner_record import OwnerRecord, read_owner
from canard_pipe.errors import CanardError, ExtensionError, InputError, StateHeld, StorageError

Rows = list[tuple[Any, ...]]
FILE, LOCK, SNAPSHOT = "state.duckdb", "owner.lock", "status.json"
LISTENS_SECONDS = 0.5
ANSWER_SECONDS = 5.0  # a run that was stopped answers never


class _Connection(Protocol):
    """Where SQL text goes: names of columns and rows come back."""

    def query(self, sql: str) -> tuple[list[str], Rows]: ...

    def read(self, sql: str) -> tuple[list[str], Rows]: ...

    def close(self) -> None: ...


class View:
    """A look at a state from outside. A context manager; keep it open only shortly.

    ``source`` is live (asked of the living owner), file (read from the file) or snapshot (status.json only: then
    ``query`` and ``sql`` raise). ``snapshot`` is the content of status.json, where there is one. ``owner`` is the
    living owner's record. ``reason`` says why there is only a snapshot. ``root`` is the launch folder.
    """

    def __init__(
        self,
        source: str,
        root: Path,
        *,
        connection: _Connection | None = None,
        snapshot: dict[str, Any] | None = None,
        owner: OwnerRecord | None = None,
        reason: str = "",
        refusal: CanardError | None = None,
    ) -> None:
        self.source, self.root, self.snapshot, self.owner, self.reason = source, root, snapshot, owner, reason
        self._connection, self._refusal = connection, refusal

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file or connection; a second call does nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def query(self, name: str, **params: Any) -> Rows:
        """Execute a named read statement and return its rows. Raises StorageError, StateHeld without SQL."""
        rows: Rows = []
        for statement in statements.load(name):
            _, rows = self._open().query(literals.render(statement, params))
        return rows

    def sql(self, text: str, *, write: bool = False) -> tuple[list[str], Rows]:
        """Execute one SQL statement as a person typed it; return names of columns and rows.

        Only one that reads, unless ``write``, which takes a living owner. Raises InputError, StorageError.
        """
        return self._open().query(text) if write else self._open().read(text)

    def _open(self) -> _Connection:
        if self._connection is None:
            raise self._refusal or StorageError("the view is closed", operation="sql")
        return self._connection


@dataclass(frozen=True, slots=True)
class Answer:
    """What the living run answered to a request."""

    ok: bool
    message: str


def open_view(state: Path, root: Path) -> View:
    """Open the best view of the state folder that there is. Nothing is changed or made.

    Raises InputError if there is no state, StateHeld if a living owner cannot be asked and has left no status.json,
    StorageError if the file cannot be read.
    """
    require_state(state)
    snapshot = read_snapshot(state)
    try:
        owner = read_owner(state / LOCK)
    except StorageError as error:  # the state is another user's
        return _only_snapshot(state, root, snapshot, str(error), None)
    if owner is not None and not owner.released:
        if owner.alive_here():
            return _live(state, root, snapshot, _when_it_listens(state, owner))
        if _elsewhere(owner):
            return _only_snapshot(state, root, snapshot, f"its owner is on {owner.host}", owner)
    return _file(state, root, snapshot, owner)


def require_state(state: Path) -> None:
    """Raise InputError if nothing was ever run with this state folder."""
    if not (state / FILE).exists() and not (state / SNAPSHOT).exists():
        raise InputError(
            f"there is no state in {state}: nothing was run here. Go to the folder of the run, or name its state "
            "with --state DIR"
        )


def living_owner(state: Path) -> OwnerRecord | None:
    """Return the record of the process of this machine that owns the state now, or None."""
    if not state.is_dir():
        return None
    owner = read_owner(state / LOCK)
    return owner if owner is not None and owner.alive_here() else None


def read_snapshot(state: Path) -> dict[str, Any] | None:
    """Return the content of status.json, or None if there is none that can be read."""
    try:
        found = json.loads((state / SNAPSHOT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def ask(
    view: View,
    kind: str,
    arguments: dict[str, Any],
    *,
    now_us: int,
    request_id: str | None = None,
    seconds: float = 10.0,
    wait: Callable[[float], None] = time.sleep,
) -> Answer:
    """Ask the living run for ``kind`` (cancel, retry, backup) and wait for its answer, ``seconds`` at most.

    With a ``request_id`` of the caller's, :func:`answer_of` finds the answer of a run that ended meanwhile.

    Asking twice with the same arguments is harmless. Raises StorageError if the run does not answer in time; it may
    still do what was asked.
    """
    request_id = request_id or str(uuid.uuid4())
    view.query(
        "ask_request",
        request_id=request_id,
        kind=kind,
        arguments=json.dumps(arguments, ensure_ascii=True),
        now_us=now_us,
    )
    step = 0.1
    for _ in range(round(seconds / step)):
        answer = answer_of(view, request_id)
        if answer is not None:
            return answer
        wait(step)
    raise StorageError(
        f"the run has not answered within {seconds:.0f} s; it may still do what was asked, see `canard-pipe status`",
        operation=kind,
    )


def answer_of(view: View, request_id: str) -> Answer | None:
    """Return the answer to a request, None while there is none."""
    rows = view.query("request_answer", request_id=request_id)
    if not rows or rows[0][0] is None:
        return None
    answer = json.loads(rows[0][0])
    return Answer(bool(answer.get("ok")), str(answer.get("message", "")))


class _File:
    """The file, opened read-only."""

    def __init__(self, path: Path) -> None:
        from canard_pipe.engine.store import Store

        self._store = Store(path, read_only=True)

    def query(self, sql: str) -> tuple[list[str], Rows]:
        return self._store.sql(sql)

    def read(self, sql: str) -> tuple[list[str], Rows]:
        from canard_pipe.engine.quack import require_read

        require_read(self._store.connection, sql)
        try:
            return self._store.sql(sql)
        except StorageError as error:
            if "pytz" not in str(error):
                raise
        # Instants with a zone are fetched as text, since otherwise the driver needs pytz.
        sql = sql.strip().rstrip(";")
        _, columns = self._store.sql(f"DESCRIBE {sql}")
        names = ['"' + str(column[0]).replace('"', '""') + '"' for column in columns]
        chosen = [
            f"{name}::VARCHAR AS {name}" if "TIME ZONE" in str(column[1]) else name
            for name, column in zip(names, columns, strict=True)
        ]
        return self._store.sql(f"SELECT {', '.join(chosen)} FROM (\n{sql}\n)")  # noqa: S608 - quoted names

    def close(self) -> None:
        self._store.close()


def _file(state: Path, root: Path, snapshot: dict[str, Any] | None, owner: OwnerRecord | None) -> View:
    try:
        connection = _File(state / FILE)
    except StorageError as error:
        # A run that has just taken the file, or a kind of file system where it cannot be read so.
        now = read_owner(state / LOCK)
        if now is not None and now.alive_here():
            return _live(state, root, snapshot, now)
        return _only_snapshot(state, root, snapshot, str(error), owner, error)
    return _checked(View("file", root, connection=connection, snapshot=snapshot))


def _live(state: Path, root: Path, snapshot: dict[str, Any] | None, owner: OwnerRecord) -> View:
    from canard_pipe.engine.quack import connect_to_owner

    try:
        connection = connect_to_owner(owner, timeout_seconds=ANSWER_SECONDS)
    except (ExtensionError, StorageError) as error:
        if not owner.alive_here():  # it has ended just now
            return _file(state, root, read_snapshot(state), None)
        return _only_snapshot(state, root, snapshot, str(error), owner)
    return _checked(View("live", root, connection=connection, snapshot=snapshot, owner=owner))


def _when_it_listens(state: Path, owner: OwnerRecord) -> OwnerRecord:
    """Wait a little for an owner that begins, or ends, just now."""
    deadline = time.monotonic() + LISTENS_SECONDS
    while owner.uri is None and owner.alive_here() and time.monotonic() < deadline:
        time.sleep(0.05)
        owner = read_owner(state / LOCK) or owner
    return owner


def _checked(view: View) -> View:
    """Return the view if its schema is the one that the statements are written for. Raises SchemaError."""
    from canard_pipe.engine import schema

    try:
        ((version,),) = view.query("newest_schema")
        schema.check_readable(int(version))
    except BaseException:
        view.close()
        raise
    return view


def _only_snapshot(
    state: Path,
    root: Path,
    snapshot: dict[str, Any] | None,
    reason: str,
    owner: OwnerRecord | None,
    error: CanardError | None = None,
) -> View:
    refusal = error or StateHeld(
        state,
        pid=owner.pid if owner else None,
        host=owner.host if owner else None,
        since=owner.since if owner else None,
    )
    if snapshot is None:
        raise refusal
    return View("snapshot", root, snapshot=snapshot, owner=owner, reason=reason, refusal=refusal)


def _elsewhere(owner: OwnerRecord) -> bool:
    return owner.host != socket.gethostname()
