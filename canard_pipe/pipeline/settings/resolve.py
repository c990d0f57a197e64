"""Which value of a setting counts, and where it comes from.

From the weakest to the strongest: the default; the site's file; the user's file; ``canard.toml`` in the launch folder;
the chosen profile, in the same order of files; the environment; the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.errors import InputError, Problem, SettingsError
from canard_pipe.pipeline.settings.files import DEFAULT_PROFILE, SettingsFile, close_to, read_file
from canard_pipe.pipeline.settings.keys import BY_NAME, KEYS, PREFIX, Key

PROJECT_FILE = "canard.toml"
SITE_FILE = Path("/etc/canard-pipe/canard.toml")
SITE_VARIABLE, USER_VARIABLE, PROFILE_VARIABLE = PREFIX + "SITE_FILE", PREFIX + "USER_FILE", PREFIX + "PROFILE"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with the value that counts. ``source`` is for people: ``default``, a file with its line, ..."""

    key: Key
    value: Any
    source: str

    def as_json(self) -> dict[str, Any]:
        """Return it for machines; sizes are bytes, durations seconds."""
        return {"name": self.key.name, "value": self.value, "source": self.source, "variable": self.key.variable}


@dataclass(slots=True)
class Settings:
    """All settings by name, and the profile that was chosen."""

    by_name: dict[str, Setting]
    profile: str | None = None
    files: list[Path] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name].value

    def table(self, name: str) -> dict[str, Any]:
        """Return the settings of a table that are set, such as ``slurm``, by their names in it."""
        inside = {key.removeprefix(f"{name}."): found.value for key, found in self.by_name.items()
                  if key.startswith(f"{name}.")}  # fmt: skip
        return {key: value for key, value in inside.items() if value is not None}


def resolve(
    launch: Path,
    environ: Mapping[str, str],
    *,
    given: Mapping[str, Any] | None = None,
    profile: str | None = None,
) -> Settings:
    """Return every setting as it counts for a run that is launched in the folder ``launch``.

    ``given``: what the command line says, by name, None where it is silent. Raises SettingsError with everything that
    is wrong in the files and variables.
    """
    wrong: list[Problem] = []
    files = [file for path in places(launch, environ) if (file := read_file(path)) is not None]
    for file in files:
        wrong += file.problems
    values = {key.name: Setting(key, key.default, "default") for key in KEYS}
    for file in files:
        for name, found in file.values.items():
            values[name] = Setting(BY_NAME[name], found.value, _place(file, found.line))
    chosen = profile or environ.get(PROFILE_VARIABLE) or _default_profile(files)
    if chosen is not None:
        _take_profile(values, files, chosen, wrong)
    _take_variables(values, environ, wrong)
    if wrong:
        raise SettingsError(wrong)
    for name, value in (given or {}).items():
        if value is not None:
            values[name] = Setting(BY_NAME[name], value, "command line")
    return Settings(values, chosen, [file.path for file in files])


def places(launch: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where settings are looked for, the weakest first: the site's, the user's, and the project's file."""
    site = environ.get(SITE_VARIABLE)
    user = environ.get(USER_VARIABLE)
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")  # noqa: PTH118 - texts
    return (
        Path(site) if site else SITE_FILE,
        Path(user) if user else Path(home) / "canard-pipe" / PROJECT_FILE,
        launch / PROJECT_FILE,
    )


def _place(file: SettingsFile, line: int | None, profile: str | None = None) -> str:
    place = str(file.path) if line is None else f"{file.path}:{line}"
    return place if profile is None else f"{place} (profile {profile})"


def _default_profile(files: list[SettingsFile]) -> str | None:
    return next((file.default_profile for file in reversed(files) if file.default_profile), None)


def _take_profile(values: dict[str, Setting], files: list[SettingsFile], chosen: str, wrong: list[Problem]) -> None:
    known = sorted({name for file in files for name in file.profiles})
    if chosen not in known:
        hint = close_to(chosen, known) or f"there is {', '.join(known) or 'none'}; {DEFAULT_PROFILE}, --profile"
        wrong.append(Problem(f"profile {chosen}", None, None, "is in no settings file", hint))
    for file in files:
        for name, found in file.profiles.get(chosen, {}).items():
            values[name] = Setting(BY_NAME[name], found.value, _place(file, found.line, chosen))


def _take_variables(values: dict[str, Setting], environ: Mapping[str, str], wrong: list[Problem]) -> None:
    by_variable = {key.variable: key for key in KEYS}
    others = (SITE_VARIABLE, USER_VARIABLE, PROFILE_VARIABLE)
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and name not in others):
        key = by_variable.get(variable)
        if key is None:
            hint = close_to(variable, [*by_variable, *others])
            wrong.append(Problem(f"${variable}", None, None, "is not a setting", hint))
            continue
        try:
            values[key.name] = Setting(key, key.from_text(environ[variable]), f"${variable}")
        except InputError as error:
            wrong.append(Problem(f"${variable}", None, None, str(error)))
