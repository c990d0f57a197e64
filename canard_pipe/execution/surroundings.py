"""Modules, a conda environment or a container around a command: what is started in place of its own members.

Everything is in the argument lists and variables, so ``command.sh`` repeats it by hand and every executor can run it.

- ``modules``: a bash loads them and then becomes the program. Their variables win over the clean environment's, and
  what ``env=`` asks for wins over theirs. A module that cannot be loaded is exit code 127: not found.
- ``conda``: the environment's ``bin`` comes first in PATH, CONDA_PREFIX is set, its activation scripts are read.
- ``container``: the first of apptainer, singularity, docker, podman that is there runs each member in the image, as the
  user, in the folder of the try, with TMPDIR in it, without the image's entry point. Folders are seen under their own
  paths: the work folder to write; to read the launch folder, those of the sample's input files and of the parameters,
  and those of files that an argument names whole. Variables are the clean environment's without PATH, HOME and the
  like, which are the image's.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.errors import CommandNotStarted, InputError
from canard_pipe.execution import environment
from canard_pipe.execution.command import Command

Members = tuple[tuple[str, ...], ...]
_APPTAINER, _DOCKER = ("apptainer", "singularity"), ("docker", "podman")
_OF_THE_IMAGE = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM"})
_OF_THE_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/proc", "/sys", "/dev")
_MODULE_COMMAND = """\
if ! type module >/dev/null 2>&1; then
    for init in "${MODULESHOME:-}/init/bash" "${LMOD_PKG:-}/init/bash" /etc/profile.d/lmod.sh \\
        /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash \\
        /usr/share/modules/init/bash /usr/share/Modules/init/bash
    do
        if [ -r "$init" ]; then . "$init" >&2; break; fi
    done
fi
type module >/dev/null 2>&1 || refuse "this machine has no module command (Lmod or environment-modules)"
"""
_MODULE = """\
module load {name} >&2 || refuse "the module "{name}" could not be loaded"
case ":${{LOADEDMODULES:-}}:" in *:{name}:*|*:{name}/*) ;; *) refuse "the module "{name}" was not loaded";; esac
"""
_CONDA = """\
[ -d {prefix}/bin ] || refuse "there is no conda environment in "{prefix}
export CONDA_PREFIX={prefix} PATH={prefix}/bin:"$PATH"
for script in {prefix}/etc/conda/activate.d/*.sh; do if [ -r "$script" ]; then . "$script" >&2; fi; done
"""


@dataclass(frozen=True, slots=True)
class Surrounded:
    """What is started for a command: argument lists and variables. ``enders`` are programs that end what goes on when
    all its processes have been killed."""

    members: Members
    variables: Mapping[str, str]
    enders: Members = ()


@dataclass(frozen=True, slots=True)
class Site:
    """Where a try runs. ``run`` is the environment of the run, ``root`` the launch folder, ``inputs`` are folders to
    read from. ``name`` names the try's containers."""

    run: Mapping[str, str]
    root: Path
    work: Path
    folder: Path
    inputs: Sequence[Path]
    name: str


def surrounded(command: Command, variables: Mapping[str, str], site: Site) -> Surrounded:
    """Return what to start for a command with these variables. Raises CommandNotStarted, InputError."""
    made = Surrounded(command.members, variables)
    if command.container is not None:
        made = _contained(command, variables, site)
    if not command.modules and command.conda is None:
        return made
    script = 'refuse() { echo "canard-pipe: $1" >&2; exit 127; }\n'
    passed = dict(made.variables)
    if command.modules:
        script += _MODULE_COMMAND + "".join(_MODULE.format(name=shlex.quote(name)) for name in command.modules)
        passed |= environment.of_modules(site.run)
    if command.conda is not None:
        script += _CONDA.format(prefix=shlex.quote(str(site.root / command.conda)))
    for name in command.env:
        if name in made.variables:
            script += f"export {name}={shlex.quote(made.variables[name])}\n"
    script += 'exec "$@"\n'
    members = tuple(("bash", "-c", script, "canard-pipe", *member) for member in made.members)
    return Surrounded(members, passed, made.enders)


def _contained(command: Command, variables: Mapping[str, str], site: Site) -> Surrounded:
    engine = _engine(command, variables, site)
    inner = {name: value for name, value in variables.items() if name not in _OF_THE_IMAGE or name in command.env}
    inner["TMPDIR"] = str(site.folder / "tmp")
    outer = dict(variables) | environment.of_containers(site.run)
    writable, readable = _folders(command, site)
    if engine in _APPTAINER:
        for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
            outer |= {f"{prefix}{name}": value for name, value in inner.items()}
        start = [engine, "exec", "--cleanenv", "--no-home", "--pid", "--pwd", str(site.folder)]
        for folder in readable:
            start += ["--bind", f"{_bindable(folder)}:{folder}:ro"]
        for folder in writable:
            start += ["--bind", f"{_bindable(folder)}:{folder}:rw"]
        image = _image_of_apptainer(str(command.container), site.root)
        return Surrounded(tuple((*start, image, *member) for member in command.members), outer)
    outer |= {name: value for name, value in inner.items() if name not in _OF_THE_IMAGE}
    members, enders = [], []
    for position, member in enumerate(command.members):
        name = f"{site.name}-{position}"
        start = [engine, "run", "--rm", "--interactive", "--name", name, "--workdir", str(site.folder)]
        if engine == "docker":  # so that TERM reaches the program; podman may lack what it needs for that
            start += ["--init"]
        start += ["--user", f"{os.getuid()}:{os.getgid()}"]
        if engine == "podman" and os.getuid() != 0:
            start += ["--userns", "keep-id"]
        for folder in readable:
            start += ["--mount", _mount(folder, "readonly")]
        for folder in writable:
            start += ["--mount", _mount(folder)]
        start += ["--env", f"HOME={site.folder / 'tmp'}"]
        for variable in sorted(inner):  # values come from the program's own environment, unless that needs its own
            start += ["--env", f"{variable}={inner[variable]}" if variable in _OF_THE_IMAGE else variable]
        image = _image_of_docker(str(command.container))
        members.append((*start, "--entrypoint", member[0], image, *member[1:]))
        enders.append((engine, "rm", "--force", name))
    return Surrounded(tuple(members), outer, tuple(enders))


def _engine(command: Command, variables: Mapping[str, str], site: Site) -> str:
    engines = (*_APPTAINER, *_DOCKER)
    for engine in engines:
        if shutil.which(engine, path=variables.get("PATH")) is not None:
            return engine
    if command.modules:
        return engines[0]  # a module brings it; if not, that is said when it is started
    raise CommandNotStarted(
        f"container={command.container!r} needs one of {', '.join(engines)} on PATH, and none is there",
        folder=site.folder, cause="not_found",
    )  # fmt: skip


def _image_of_apptainer(image: str, root: Path) -> str:
    if "://" in image:
        return image
    return str(root / image) if (root / image).exists() or image.endswith(".sif") else f"docker://{image}"


def _image_of_docker(image: str) -> str:
    if image.endswith(".sif") or image.startswith(("/", "./", "../")):
        raise InputError(f"the image {image} is a file: apptainer could run it, docker and podman cannot")
    return image.removeprefix("docker://")


def _folders(command: Command, site: Site) -> tuple[list[Path], list[Path]]:
    """Return the folders to write and those to read only; none lies below another of its kind."""
    named = [Path(word) for member in command.members for word in member[1:] if word.startswith("/")]
    named += [Path(command.stdin)] if command.stdin and command.stdin.startswith("/") else []
    seen = [path.parent if path.is_file() else path for path in named if path.exists()]
    readable = [folder for folder in (*site.inputs, *seen) if not _is_of_the_system(folder)]
    writable = _outermost([site.work, site.folder])
    return writable, _outermost([site.root, *readable, *(folder.resolve() for folder in readable)])


def _is_of_the_system(folder: Path) -> bool:
    return folder == Path("/") or any(folder.is_relative_to(place) for place in _OF_THE_SYSTEM)


def _outermost(folders: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for folder in sorted(set(folders), key=lambda each: (len(each.parts), each)):
        if not any(folder.is_relative_to(above) for above in kept):
            kept.append(folder)
    return kept


def _bindable(folder: Path) -> Path:
    if ":" in str(folder) or "," in str(folder):
        raise InputError(f"the folder {folder} cannot be bound into a container: its path holds a colon or a comma")
    return folder


def _mount(folder: Path, *more: str) -> str:
    """Return a value of --mount, which is one line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={folder}", f"target={folder}", *more])
    return line.getvalue()
