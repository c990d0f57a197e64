"""Publishing: how a checked file gets from a try's folder into the results, whatever dies on the way.

Five moments, each durable before the next (docs/design.md, publishing):

1. the file is checked;
2. it is staged on the file system of the results under a name that holds the accept id, and synced;
3. one write under the lease records it as accepted in ``outputs``: from now on anybody may finish it;
4. it is renamed into its place;
5. the folder is synced and the row marked published.

A crash before 3 leaves a staging file that :meth:`Publisher.sweep` removes; after 3 the record is finished by
:meth:`Publisher.finish`. A stale worker is refused at 3 and never puts a byte into the results.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from canard_pipe.errors import ConflictError, LeaseLost, PublishError, StorageError
from canard_pipe.pipeline import outputs, placing, settling
from canard_pipe.pipeline.outputs import AcceptId, Database, Output, Tasks, stored
from canard_pipe.pipeline.placing import At
from canard_pipe.pipeline.refusals import explained, refuse_changed, refuse_other, refuse_place
from canard_pipe.pipeline.settling import Deviation, Settled
from canard_pipe.pipeline.staging import KeepAlive, Staged, discard, glance, stage, staging_folder, sync_folder
from canard_pipe.pipeline.targets import Target, ancestor_keys, targets_of

POINTS = ("checked", "staged", "accepted", "aside", "renamed", "synced", "published")
_TRIES = 8


class Claim(Protocol):
    """What publishing asks of the engine's claim."""

    id: str
    seq: int
    attempt: int
    step_name: str | None

    @property
    def database(self) -> Tasks: ...

    def write(self, statement: str, rows: Sequence[dict[str, Any]]) -> None: ...

    def ride(self, statement: str, row: dict[str, Any]) -> None: ...


log = logging.getLogger(__name__)


def _nothing() -> None:
    return


def _nowhere(_point: str) -> None:
    return


def _unique() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class _Item:
    """One file on its way: where from, where to, under which name it is staged, which row it replaces."""

    source: Path
    target: Target
    accept_id: AcceptId
    staging: Path
    replaces: Output | None


@dataclass(frozen=True, slots=True)
class _StagedItem(_Item):
    staged: Staged


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes into ``results``; used by all handler threads of a run at once, and holds no state.

    ``state`` is the state folder (``.canard``); both are absolute paths. ``check`` returns what is wrong with a file
    before it is published. A file below ``work``, the folder of the tries, becomes a hard link and read-only if
    ``alive`` tells that no process of its try can still write to it; anything else is copied. ``at`` is called with
    each of ``POINTS`` as it is reached (a test dies there). ``owner`` returns what the ids of all generations of a
    task have in common: they may replace each other's results.
    """

    results: Path
    state: Path
    check: Callable[[Path, KeepAlive], Sequence[str]]
    work: Path | None = None
    alive: Callable[[Path], bool] = lambda _path: True
    at: At = _nowhere
    unique: Callable[[], str] = _unique
    owner: Callable[[str], str] = outputs.owner_of

    def publish(
        self, claim: Claim, files: Mapping[str, Path], subfolder: str, *, keep_alive: KeepAlive = _nothing,
        allow_empty: bool = False,
    ) -> dict[str, Path]:
        """Publish ``files`` (name of the result, path of a file or folder) below ``subfolder`` of the results.

        Return where each is. Call it inside a step: if that step was not saved, the same call finds what it
        accepted or published before and finishes or reuses it. All files of a call are accepted together or none.
        ``keep_alive`` is called again and again during long work and may raise. ``allow_empty`` lets files of 0
        bytes pass.

        Raises PublishError (then nothing of the failed file is left), LeaseLost, StorageError.
        """
        targets = targets_of(subfolder, files, self.results)
        sources = {name: self._source(name, Path(path)) for name, path in files.items()}
        self._check(sources, targets, allow_empty=allow_empty, keep_alive=keep_alive)
        self.at("checked")
        items = self._judged(claim, sources, targets, keep_alive)
        try:
            staged = [self._staged(item, keep_alive) for item in items]
            self._sync_staging(staged)
            self.at("staged")
        except BaseException:
            self._discard(items)
            raise
        try:
            staged = self._accept(claim, staged, keep_alive)
        except (LeaseLost, ConflictError, PublishError):  # after anything else it may be accepted: keep the staging
            self._discard(items)
            raise
        self.at("accepted")
        self._place(claim, staged, keep_alive)
        if claim.attempt > 1:
            self._retire_of_step(claim, {target.key for target in targets.values()}, keep_alive)
        return {name: target.below(self.results) for name, target in targets.items()}

    def finish(
        self, database: Database, task_seq: int | None = None, *, keep_alive: KeepAlive = _nothing
    ) -> list[Settled]:
        """Finish what was accepted and not placed, of one task or of all; return what was done for each target.

        For the owner of the database: when it starts (after it has closed the attempts of a dead predecessor),
        before a task is claimed again, and after a cancel. May be repeated, also while a publisher is at work.
        """
        return [
            settling.settle(output, database.root, self.results, database.write, self.at, keep_alive)
            for output in outputs.accepted(database, task_seq)
        ]

    def retire(self, database: Database) -> list[Settled]:
        """Take away what earlier generations have published and the complete present one has not made again.

        Otherwise results of an old input would lie beside those of the new one. Never a file that was changed by hand.
        """
        return [
            settling.retire(output, self.results, database.write, _nothing) for output in outputs.superseded(database)
        ]

    def sweep(self, database: Database) -> list[Path]:
        """Remove staging files that neither an accepted row nor a running attempt needs; return them.

        For the owner when it starts, after :meth:`finish`.
        """
        return settling.sweep(database, self.state, self.results)

    def verify(
        self, database: Database, *, thorough: bool = False, keep_alive: KeepAlive = _nothing
    ) -> list[Deviation]:
        """Return the published targets that are gone or differ from their record; ``thorough`` reads all bytes."""
        return settling.deviations(database, self.results, thorough=thorough, keep_alive=keep_alive)

    def _retire_of_step(self, claim: Claim, keys: set[str], keep_alive: KeepAlive) -> None:
        """Take away what this very step has published under other names when it ran before."""
        step = outputs.step_digest(claim.step_name)
        for output in outputs.of_task(claim.database, claim.seq):
            if output.step == step and output.target_key not in keys:
                settled = settling.retire(output, self.results, claim.write, keep_alive)
                log.warning("%s %s", settled.target, settled.detail)

    # -- moment 1 -----------------------------------------------------------------------------------------------

    def _source(self, name: str, path: Path) -> Path:
        try:
            return path.resolve(strict=True)  # what a symbolic link stands for is published, never the link
        except OSError as error:
            raise PublishError(f"{path} is not there, so {name!r} cannot be published", name) from error

    def _check(
        self, sources: Mapping[str, Path], targets: Mapping[str, Target], *, allow_empty: bool, keep_alive: KeepAlive
    ) -> None:
        found: dict[str, Sequence[str]] = {}
        for name, path in sources.items():
            if not (allow_empty and path.is_file() and path.stat().st_size == 0):
                found[name] = self.check(path, keep_alive)
        bad = [name for name, problems in found.items() if problems]
        if bad:
            message = "; ".join(problem for name in bad for problem in found[name])
            raise PublishError(f"not published: {message}", targets[bad[0]].text)

    def _judged(
        self, claim: Claim, sources: Mapping[str, Path], targets: Mapping[str, Target], keep_alive: KeepAlive
    ) -> list[_Item]:
        """Return the files that are to be published: those that are not already, none that must not be."""
        rows = self._rows(claim, targets.values(), keep_alive)
        step = outputs.step_digest(claim.step_name)
        folder = staging_folder(self.state, self.results)
        items: list[_Item] = []
        for name, target in targets.items():
            output = rows.get(target.key)
            if output is not None and self._is_done(claim, output, sources[name], step):
                continue
            refuse_place(self.results, target)
            refuse_changed(target, target.below(self.results), sources[name], output, keep_alive)
            accept_id = AcceptId(claim.seq, claim.attempt, step, self.unique())
            items.append(_Item(sources[name], target, accept_id, folder / str(accept_id), output))
        return items

    def _rows(self, claim: Claim, targets: Any, keep_alive: KeepAlive) -> dict[str, Output]:
        """Return the rows of the targets, after finishing unfinished ones; refuse what belongs to others."""
        targets = list(targets)
        keys = {key for target in targets for key in (target.key, *ancestor_keys(target))}
        rows = outputs.known(claim.database, keys)
        for target in targets:
            for key in (*ancestor_keys(target), target.key):
                refuse_other(claim.id, claim.seq, target, rows.get(key), self.owner)
        unfinished = [rows[target.key] for target in targets if target.key in rows]
        unfinished = [output for output in unfinished if output.state == "accepted"]
        if not unfinished:
            return rows
        for output in unfinished:
            done = settling.settle(
                output, claim.database.root, self.results, claim.write, self.at, keep_alive
            )
            if done.action in ("busy", "refused"):
                raise PublishError(f"{output.target}: {done.detail}", output.target)
        return outputs.known(claim.database, keys)

    def _is_done(self, claim: Claim, output: Output, source: Path, step: str) -> bool:
        """Tell whether this step has published this very source before: then nothing needs to be read again."""
        if (output.state, output.task_seq, output.step) != ("published", claim.seq, step):
            return False
        if output.source != stored(source, claim.database.root):
            return False
        for path in (source, self.results / output.target):
            try:
                seen = glance(path)
            except FileNotFoundError:
                return False
            if (seen.kind, seen.size) != (output.kind, output.size) or seen.newest_ns >= output.accepted_us * 1000:
                return False
        return True

    # -- moments 2 and 3 ----------------------------------------------------------------------------------------

    def _staged(self, item: _Item, keep_alive: KeepAlive) -> _StagedItem:
        try:
            placing.make_folders(item.staging.parent)
            staged = stage(
                item.source, item.staging, target=item.target.text, link=self._may_link(item.source),
                keep_alive=keep_alive,
            )
        except OSError as error:
            raise explained(error, item.target.text, "stage", self.results) from error
        return _StagedItem(item.source, item.target, item.accept_id, item.staging, item.replaces, staged)

    def _may_link(self, source: Path) -> bool:
        # An input of the user is no file of a try, and must never become read-only.
        within = self.work is not None and source.is_relative_to(self.work.resolve())
        return within and not self.alive(source)

    def _sync_staging(self, items: Sequence[_StagedItem]) -> None:
        for folder in {item.staging.parent for item in items}:
            sync_folder(folder)

    def _accept(self, claim: Claim, items: list[_StagedItem], keep_alive: KeepAlive) -> list[_StagedItem]:
        """Record all items as accepted; the rows that they replace are those judged, or nothing is written."""
        for _ in range(_TRIES if items else 0):
            self._refuse_second_step(claim, items)
            failure: StorageError | None = None
            try:
                claim.write("accept_outputs", self._accept_rows(claim, items))
            except LeaseLost:
                raise
            except StorageError as error:
                failure = error  # perhaps committed, perhaps another transaction took the key: the rows tell
            rows = outputs.known(claim.database, [item.target.key for item in items])
            ours = [item for item in items if _is_accepted(rows.get(item.target.key), item)]
            if len(ours) == len(items):
                return items
            before = {item.target.key: item.replaces for item in items}
            rows = self._rows(claim, [item.target for item in items], keep_alive)
            items = [replace(item, replaces=rows.get(item.target.key)) for item in items]
            if failure is not None and before == {item.target.key: item.replaces for item in items}:
                raise failure
        if items:
            target = items[0].target.text
            raise PublishError(f"{target} is published by others again and again at the same time", target)
        return items

    def _accept_rows(self, claim: Claim, items: Sequence[_StagedItem]) -> list[dict[str, Any]]:
        root = claim.database.root
        return [
            {
                "target_key": item.target.key, "target": item.target.text, "kind": item.staged.content.kind,
                "source": _text(item.source, root), "staging": _text(item.staging, root),
                "accept_id": str(item.accept_id), "call": str(items[0].accept_id),
                "replaces": None if item.replaces is None else item.replaces.accept_id,
                "size": item.staged.content.size, "checksum": item.staged.content.checksum,
                "task_seq": claim.seq, "attempt": claim.attempt,
            }
            for item in items
        ]

    def _refuse_second_step(self, claim: Claim, items: Sequence[_StagedItem]) -> None:
        """Refuse to let a step replace what another, saved step of this task has published (BUGS 23)."""
        for item in items:
            output = item.replaces
            if output is None or output.task_seq != claim.seq:
                continue
            if output.step == item.accept_id.step or output.content == item.staged.content:
                continue
            names = [row[0] for row in claim.database.query("saved_steps", task_seq=claim.seq)]
            first = next((name for name in names if outputs.step_digest(name) == output.step), None)
            if first is not None:
                raise PublishError(
                    f"{item.target.text} was published by step {first!r} of the same task with another content; "
                    "give each its own name, for instance with the lane in it",
                    item.target.text,
                )

    # -- moments 4 and 5 ----------------------------------------------------------------------------------------

    def _place(self, claim: Claim, items: Sequence[_StagedItem], keep_alive: KeepAlive) -> None:
        placed: list[_StagedItem] = []
        try:
            for item in items:
                self._place_one(claim, item, keep_alive)
                placed.append(item)
            for folder in {item.target.below(self.results).parent for item in items}:
                sync_folder(folder)
        except (OSError, PublishError) as error:
            left = [item for item in items if item not in placed]
            self._withdraw(claim, left)
            failed = (left or list(items))[0]
            if isinstance(error, PublishError):
                raise
            raise explained(error, failed.target.text, "place", self.results) from error
        self.at("synced")
        for item in items:
            # A crash before this row is written is recovered: finish() compares the target with the record.
            claim.ride("publish_outputs", {"target_key": item.target.key, "accept_id": str(item.accept_id)})
        self.at("published")

    def _place_one(self, claim: Claim, item: _StagedItem, keep_alive: KeepAlive) -> None:
        staged = item.staged
        target = item.target.below(self.results)
        try:
            if placing.place(
                staged.path, target, replace=item.replaces is not None, at=self.at,
                is_new=lambda: os.lstat(staged.path).st_ino == staged.inode,
            ):
                return
        except FileExistsError:
            if item.replaces is not None or not settling.holds(target, staged.content, keep_alive):
                raise
            discard(staged.path)  # what lies there is the same
            return
        # Another process finishes this record: what counts is that the target holds what was accepted.
        output = outputs.known(claim.database, [item.target.key]).get(item.target.key)
        if not _is_accepted(output, item) or not settling.holds(target, staged.content, keep_alive):
            raise PublishError(f"the staged file of {item.target.text} vanished before it was in its place",
                               item.target.text)

    def _withdraw(self, claim: Claim, items: Sequence[_Item]) -> None:
        """Take back what was accepted and could not be placed; if even that fails, finish() will meet it."""
        rows = [
            {"before": None} | ({} if item.replaces is None else item.replaces.before())
            | {"target_key": item.target.key, "accept_id": str(item.accept_id)}
            for item in items
        ]
        if rows:
            claim.write("withdraw_outputs", rows)
            self._discard(items)

    def _discard(self, items: Sequence[_Item]) -> None:
        for item in items:
            discard(item.staging)


def _is_accepted(output: Output | None, item: _Item) -> bool:
    return output is not None and output.accept_id == str(item.accept_id)


def _text(path: Path, root: Path) -> str:
    return stored(path, root).encode(errors="replace").decode()
