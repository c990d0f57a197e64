"""Modules, conda environments and containers around commands: real shells, stand-ins for what is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from canard_pipe.errors import CommandFailed, CommandNotStarted, CommandTimeout, InputError
from canard_pipe.execution import surroundings
from tests.conftest import absent

# A stand-in for the module command: `module load bwa/0.7` puts TOOLS/bwa-0.7 first in PATH, as Lmod would.
MODULES = """
module() {
    [ "$1" = load ] || return 1
    echo "loading $2"
    [ -d "$MODULE_TOOLS/${2/\\//-}" ] || { echo "Unable to locate a modulefile for '$2'" >&2; return $MODULE_FAILS; }
    export PATH="$MODULE_TOOLS/${2/\\//-}:$PATH" LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}$2" FROM_MODULE=yes
}
"""
# A stand-in for docker: notes its arguments, and runs what it was asked to run as docker would, without a container.
DOCKER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["HOME"] + "/docker.jsonl", "a") as log:
    log.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
words, inner, options = sys.argv[2:], {"PATH": os.environ["PATH"]}, {}
while words[0].startswith("--"):
    name = words.pop(0)
    if name in ("--rm", "--init", "--interactive"):
        continue
    value = words.pop(0)
    options[name] = value
    if name == "--env":
        key, is_set, text = value.partition("=")
        inner[key] = text if is_set else os.environ[key]
os.chdir(options["--workdir"])
os.execvpe(options["--entrypoint"], [options["--entrypoint"], *words[1:]], {**inner, "IMAGE": words[0]})
"""
# Another: the client only asks, by a file in `containers`, and the container lives until that file is gone.
DETACHED_DOCKER = """#!/usr/bin/env python3
import os, sys, time
home = os.environ["HOME"]
if sys.argv[1] == "rm":
    with open(home + "/removed", "a") as removed:
        removed.write(sys.argv[3] + "\\n")
    os.unlink(home + "/containers/" + sys.argv[3])
    sys.exit()
open(home + "/containers/" + sys.argv[sys.argv.index("--name") + 1], "w").close()
time.sleep(100)
"""
APPTAINER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["HOME"] + "/apptainer.json", "w") as log:
    json.dump(sys.argv[1:], log)
words = sys.argv[2:]
while words[0].startswith("--"):
    name = words.pop(0)
    if name in ("--bind", "--pwd"):
        value = words.pop(0)
        if name == "--pwd":
            os.chdir(value)
inner = {k.removeprefix("APPTAINERENV_"): v for k, v in os.environ.items() if k.startswith("APPTAINERENV_")}
os.execvpe(words[1], words[1:], {"PATH": os.environ["PATH"], **inner, "IMAGE": words[0]})
"""


KEPT = ("PATH", "HOME", "LANG", "SECRET")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("/usr/bin/env python3", sys.executable))
    path.chmod(0o755)
    return path


def again(lab, **environ):
    """Let the laboratory take its environment anew."""
    lab.environ = {name: lab.environ[name] for name in KEPT if name in lab.environ} | environ
    lab.database.close()
    lab.database = lab._open()
    return lab


@pytest.fixture
def site(make_lab, tmp_path):
    """A laboratory whose programs are those of its folder ``bin`` and the system's."""
    root = tmp_path / "My Lab's data (2024) ü"  # BUGS 67
    lab = make_lab(root)
    (root / "bin").mkdir()
    (root / "system").mkdir()
    for name in ("bash", "sh", "cat", "env", "sleep", "echo", "mkdir", "dirname", "true", "pwd"):
        found = shutil.which(name)
        assert found is not None
        (root / "system" / name).symlink_to(found)  # no real engine is to be found
    path = f"{root / 'bin'}:{root / 'system'}"
    return again(lab, PATH=path, HOME=str(root), LANG="C.UTF-8", SECRET="leak")


@pytest.fixture
def modules(site):
    home = site.root / "modules"
    program(home / "init" / "bash", MODULES)
    program(home / "tools" / "bwa-0.7" / "bwa", "#!/bin/sh\necho bwa 0.7 $FROM_MODULE $ASKED; cat\n")
    return again(site, MODULESHOME=str(home), MODULE_TOOLS=str(home / "tools"), MODULE_FAILS="1")


def out(folder: Path) -> str:
    return (folder / "stdout.log").read_text()


def by_hand(folder: Path, lab) -> str:
    """Run command.sh, as a user would, with the user's environment."""
    done = subprocess.run(
        [str(folder / "command.sh")], cwd="/", env=lab.environ, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


def test_modules_are_loaded_around_the_program_and_env_wins_over_them(modules):
    folder = modules.claim().pipe(["echo", "reads"], ["bwa"], modules=["bwa/0.7"], env={"ASKED": "mine's", "LANG": "C"})
    assert out(folder) == "bwa 0.7 yes mine's\nreads\n"
    assert by_hand(folder, modules) == out(folder)
    shell = modules.claim("b").shell("bwa < /dev/null; echo $LANG", modules=["bwa/0.7"], env={"FROM_MODULE": "no"})
    assert out(shell).split() == ["bwa", "0.7", "no", "C.UTF-8"]


@pytest.mark.parametrize("status", ["0", "1"])
def test_a_module_that_is_not_there_is_not_found_also_where_load_says_0(modules, status):
    home = modules.root / "modules"
    again(modules, MODULESHOME=str(home), MODULE_TOOLS=str(home), MODULE_FAILS=status)  # old ones end with 0
    with pytest.raises(CommandFailed, match="module no/such") as caught:
        modules.claim().process(["bwa"], modules=["no/such"])
    assert (caught.value.cause, caught.value.again.final) == ("not_found", True)


def test_no_module_command_is_said(site, monkeypatch):
    text = surroundings._MODULE_COMMAND.replace("/etc", "/no").replace("/usr", "/no")
    monkeypatch.setattr(surroundings, "_MODULE_COMMAND", text)  # this machine may have one
    with pytest.raises(CommandFailed, match="no module command"):
        site.claim().process(["true"], modules=["bwa"])


def test_the_real_module_command_where_it_is_installed(site):
    if not Path("/usr/share/modules/init/bash").exists():
        absent("environment-modules")
    places = site.root / "modulefiles"
    program(places / "tool" / "1.0", f"#%Module1.0\nprepend-path PATH {{{places / 'tools'}}}\n")
    program(places / "tools" / "mytool", "#!/bin/sh\necho real\n")
    again(site, MODULEPATH=str(places))
    assert out(site.claim().process(["mytool"], modules=["tool"])) == "real\n"
    with pytest.raises(CommandFailed, match="absent/2"):
        site.claim("b").process(["mytool"], modules=["absent/2"])


def test_a_conda_environment_comes_first_and_its_scripts_are_read(site):
    prefix = site.root / "envs" / "bwa"
    program(prefix / "bin" / "bwa", "#!/bin/sh\necho $CONDA_PREFIX $JAVA_HOME\n")
    program(prefix / "etc" / "conda" / "activate.d" / "java.sh", 'export JAVA_HOME="$CONDA_PREFIX/jvm"; echo noise\n')
    folder = site.claim().process(["bwa"], conda="envs/bwa")
    assert out(folder) == f"{prefix} {prefix}/jvm\n"
    assert by_hand(folder, site) == out(folder)
    with pytest.raises(CommandFailed, match=r"no conda environment in .*envs/absent"):
        site.claim("b").process(["bwa"], conda="envs/absent")


def test_docker_runs_each_member_as_the_user_in_the_folder_of_the_try(site):
    program(site.root / "bin" / "docker", DOCKER)
    data = site.root.parent / "in, put:s" / "reads.txt"
    data.parent.mkdir()
    data.write_text("reads\n")
    folder = site.claim().pipe(
        ["cat", data], ["sh", "-c", "cat; echo $IMAGE $TMPDIR $ASKED $OMP_NUM_THREADS $SECRET"],
        container="docker://quay.io/bwa:0.7", env={"ASKED": "x"}, cpus=2, memory="1G",
    )  # fmt: skip
    assert out(folder) == f"reads\nquay.io/bwa:0.7 {folder}/tmp x 2\n"
    (words, outer), _ = [json.loads(line) for line in (site.root / "docker.jsonl").read_text().splitlines()]
    assert words[:4] == ["run", "--rm", "--interactive", "--name"]
    assert "--init" in words
    assert words[words.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert words[words.index("--workdir") + 1] == str(folder)
    mounts = [words[at + 1] for at, word in enumerate(words) if word == "--mount"]
    assert f'type=bind,"source={data.parent}","target={data.parent}",readonly' in mounts
    assert f"type=bind,source={site.root / 'work'},target={site.root / 'work'}" in mounts
    assert "SECRET" not in outer
    assert by_hand(folder, site) == out(folder)


def test_a_container_ends_with_its_command(site, background, wait_until):
    """The engine's process is no child of ours, so killing the client does not end it."""
    program(site.root / "bin" / "docker", DETACHED_DOCKER)
    containers, removed = site.root / "containers", site.root / "removed"
    containers.mkdir()
    with pytest.raises(CommandTimeout):
        site.claim().process(["sleep", "61"], container="image", time="2s")
    wait_until(lambda: removed.exists() and not list(containers.iterdir()), 10)
    call = background(lambda: site.claim("b").process(["sleep", "62"], container="image"))
    wait_until(lambda: list(containers.iterdir()), 10)
    site.executor._launcher.kill()  # and with it who should have ended the container
    wait_until(lambda: len(removed.read_text().split()) == 2, 10)
    site.executor.stop_all()
    call.join()
    assert all(name.startswith("canard-") for name in removed.read_text().split())


def test_apptainer_binds_and_passes_variables_without_the_hosts_path(site):
    program(site.root / "bin" / "apptainer", APPTAINER)
    program(site.root / "bin" / "docker", "#!/bin/sh\nexit 9\n")  # apptainer is asked first
    folder = site.claim().process(
        ["sh", "-c", "echo $IMAGE $TMPDIR $ASKED $SECRET; pwd"], container="quay.io/bwa:0.7", env={"ASKED": "a,b"}
    )
    assert out(folder) == f"docker://quay.io/bwa:0.7 {folder}/tmp a,b\n{folder}\n"
    words = json.loads((site.root / "apptainer.json").read_text())
    assert words[:4] == ["exec", "--cleanenv", "--no-home", "--pid"]
    assert f"{site.root / 'work'}:{site.root / 'work'}:rw" in words
    assert by_hand(folder, site) == out(folder)
    (site.root / "bwa.sif").touch()
    folder = site.claim("b").process(["sh", "-c", "echo $IMAGE"], container="bwa.sif")
    assert out(folder) == f"{site.root}/bwa.sif\n"


def test_no_engine_is_final_and_names_those_that_would_do(site):
    again(site, PATH=str(site.root / "bin"))
    with pytest.raises(CommandNotStarted, match=r"apptainer, singularity, docker, podman.*none is there") as caught:
        site.claim().process(["bwa"], container="bwa:1")
    assert caught.value.cause == "not_found"


@pytest.mark.parametrize(
    "options",
    [{"modules": "bwa"}, {"modules": [""]}, {"modules": ["-h"]}, {"conda": ""}, {"container": "-v"},
     {"container": "a", "conda": "b"}],
)  # fmt: skip
def test_surroundings_that_make_no_sense_are_refused(site, options):
    with pytest.raises(InputError):
        site.claim().process(["true"], **options)


def test_other_surroundings_are_another_command(site):
    from canard_pipe.execution.command import Options, command

    others: list[Options] = [
        {}, {"modules": ["a"]}, {"modules": ["a", "b"]}, {"conda": "a"}, {"container": "a"},
    ]  # fmt: skip
    digests = [command([["true"]], options).digest(site.root) for options in others]
    assert len(set(digests)) == 5


