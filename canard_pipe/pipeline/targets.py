"""Names of results: where a published file goes, and which names would be the same file somewhere.

A target is a relative path below the results folder. Its key is the target in NFC and case-folded, so that two names
which a Mac or a Windows share takes for one are one row of ``outputs`` (docs/design.md, publishing).
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from canard_pipe.errors import PublishError

STAGING_IN_RESULTS = ".canard-staging"  # only where the state lies on another file system than the results
_NAME_BYTES = 255
_PATH_BYTES = 4095


@dataclass(frozen=True, slots=True)
class Target:
    """A place below the results folder: ``text`` with ``/`` between its parts, and its ``key``."""

    text: str
    key: str

    def below(self, results: Path) -> Path:
        """Return the target's path in ``results``."""
        return results / self.text


def targets_of(subfolder: str, names: Iterable[str], results: Path) -> dict[str, Target]:
    """Return the target of each name in the sample's ``subfolder`` of ``results``.

    Raises PublishError for a name that is empty, leaves the folder, is too long or cannot be stored, and for two
    names that are the same file, or one of which lies inside the other.
    """
    found: dict[str, Target] = {}
    for name in names:
        text = "/".join((*_parts(subfolder, subfolder, empty=True), *_parts(name, name)))
        _check_length(text, results)
        found[name] = Target(text, key_of(text))
    _check_apart(found)
    return found


def key_of(text: str) -> str:
    """Return the key of a target: equal for names that some file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def ancestor_keys(target: Target) -> list[str]:
    """Return the keys of the folders that a target lies in: a published folder must not get files of others."""
    parts = target.key.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _parts(name: str, shown: str, *, empty: bool = False) -> tuple[str, ...]:
    if not isinstance(name, str):
        raise PublishError(f"the name of a result must be text, not {name!r}", str(name))
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in name):
        raise PublishError(f"the name {shown!r} holds characters that no file name should have", shown)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise PublishError(
            f"{shown!r} leads out of the sample's results folder; give a name such as 'sample.bam' or 'qc/sample.html'",
            shown,
        )
    if not path.parts and not empty:
        raise PublishError("a result needs a name", shown)
    if path.parts and path.parts[0].casefold() == STAGING_IN_RESULTS:
        raise PublishError(f"the name {STAGING_IN_RESULTS} is canard-pipe's own; choose another", shown)
    return path.parts


def _check_length(text: str, results: Path) -> None:
    for part in text.split("/"):
        size = len(os.fsencode(part))
        if size > _NAME_BYTES:
            raise PublishError(
                f"the name {part[:40]}… is {size} bytes long and a file name may have {_NAME_BYTES}; shorten it", text
            )
    size = len(os.fsencode(results / text))
    if size > _PATH_BYTES:
        raise PublishError(
            f"the path of {text[:40]}… would be {size} bytes long, {_PATH_BYTES} are possible; shorten the name "
            "or give another results folder",
            text,
        )


def _check_apart(found: dict[str, Target]) -> None:
    names: dict[str, str] = {}
    for name, target in found.items():
        twin = names.setdefault(target.key, name)
        if twin != name:
            raise PublishError(
                f"{twin!r} and {name!r} would be the same file where case or accents do not count; rename one",
                target.text,
            )
    for name, target in found.items():
        for key in ancestor_keys(target):
            if key in names:
                raise PublishError(
                    f"{name!r} would lie inside {names[key]!r}, which is published as well; rename one", target.text
                )
