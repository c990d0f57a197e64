"""Settings: which value counts and where it comes from; everything wrong at once, with file, line and the close key."""

from __future__ import annotations

import pytest

from canard_pipe.errors import SettingsError
from canard_pipe.pipeline.settings.keys import KEYS, KINDS
from canard_pipe.pipeline.settings.resolve import resolve


@pytest.fixture
def files(tmp_path):
    """Write the site's, the user's and the project's file; return what resolve takes."""
    environ = {"CANARD_PIPE_SITE_FILE": str(tmp_path / "site.toml"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}

    def write(*, site="", user="", project="", **variables):
        (tmp_path / "site.toml").write_text(site)
        (tmp_path / "xdg" / "canard-pipe").mkdir(parents=True, exist_ok=True)
        (tmp_path / "xdg" / "canard-pipe" / "canard.toml").write_text(user)
        (tmp_path / "canard.toml").write_text(project)
        return tmp_path, environ | variables

    return write


def sources(settings, *names):
    return {name: (settings[name], settings.by_name[name].source.rpartition("/")[2]) for name in names}


def test_without_any_file_the_defaults_count(tmp_path):
    settings = resolve(tmp_path, {"HOME": str(tmp_path), "CANARD_PIPE_SITE_FILE": str(tmp_path / "no.toml")})
    assert {setting.source for setting in settings.by_name.values()} == {"default"}
    assert (settings["state"], settings["executor"], settings["cpus"]) == (".canard", "local", None)
    assert settings.files == []


def test_the_stronger_place_wins_and_is_named(files):
    place = files(
        site='cpus = 1\nmemory = "1G"\nwork = "site"\nresults = "site"\nslots = 1\nexecutor = "local"\n',
        user='memory = "2G"\nwork = "user"\nresults = "user"\nslots = 2\n',
        project='# mine\nwork = "project"\nresults = "project"\nslots = 3\n[profile.big]\nresults = "big"\nslots = 4\n',
        CANARD_PIPE_SLOTS="5",
    )
    found = resolve(*place, profile="big", given={"slots": None})
    assert sources(found, "cpus", "memory", "work", "results", "slots") == {
        "cpus": (1, "site.toml:1"),
        "memory": (2 * 1024**3, "canard.toml:1"),
        "work": ("project", "canard.toml:2"),
        "results": ("big", "canard.toml:6 (profile big)"),
        "slots": (5, "$CANARD_PIPE_SLOTS"),
    }
    given = resolve(*place, profile="big", given={"slots": 6})
    assert sources(given, "slots") == {"slots": (6, "command line")}


def test_a_profile_is_chosen_by_the_command_line_then_a_variable_then_the_nearest_file(files):
    profiles = "".join(f"[profile.{name}]\nslots = {n}\n" for n, name in enumerate(("a", "b", "c"), start=1))
    place = files(site=profiles, user='default_profile = "a"\n', project='default_profile = "b"\n')
    assert resolve(*place)["slots"] == 2
    launch, environ = place
    environ = environ | {"CANARD_PIPE_PROFILE": "a"}
    assert resolve(launch, environ)["slots"] == 1
    assert resolve(launch, environ, profile="c")["slots"] == 3


def test_a_profile_of_several_files_is_merged_and_stands_above_all_plain_values(files):
    place = files(
        site='[profile.hpc]\ncpus = 8\nexecutor = "slurm"\n[profile.hpc.slurm]\npartition = "short"\nqos = "low"\n',
        project='cpus = 2\n[slurm]\naccount = "lab"\n[profile.hpc.slurm]\npartition = "long"\noptions = ["-X"]\n',
    )
    settings = resolve(*place, profile="hpc")
    assert (settings["cpus"], settings["executor"]) == (8, "slurm")
    assert settings.table("slurm") == {
        "partition": "long", "account": "lab", "qos": "low", "options": ("-X",),
    }  # fmt: skip


def test_everything_wrong_is_told_at_once_with_file_line_key_and_the_close_one(files):
    place = files(
        user='cpus = "four"\n',
        project='memroy = "4G"\nslots = 0\n\n[slurm]\npartitoin = "x"\n[profile.big]\nwork = 7\n\n[limits]\ngpu = -1\n',
        CANARD_PIPE_CPU="3",
        CANARD_PIPE_MEMORY="lots",
    )
    with pytest.raises(SettingsError) as caught:
        resolve(*place)
    told = [str(problem).replace(f"{place[0]}/", "") for problem in caught.value.problems]
    assert told == [
        "xdg/canard-pipe/canard.toml:1: column cpus: must be a number above 0, not 'four' (it is a number)",
        "canard.toml:1: column memroy: is not a setting (did you mean 'memory'?)",
        "canard.toml:2: column slots: must be a whole number of at least 1, not 0 (it is a whole number)",
        "canard.toml:5: column slurm.partitoin: is not a setting (did you mean 'partition'?)",
        "canard.toml:7: column profile.big.work: must be a text in quotes, not 7 (it is a path)",
        "canard.toml:9: column limits: gpu must be a whole number of at least 1, not -1 "
        "(it is a table of names and whole numbers (in a variable: a=1,b=2))",
        "$CANARD_PIPE_CPU: is not a setting (did you mean 'CANARD_PIPE_CPUS'?)",
        "$CANARD_PIPE_MEMORY: memory 'lots' is not a size such as '4G', '512M' or a number of bytes",
    ]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("cpus = = 1\n", 1, "not valid TOML"),
        ("cpus = 1\ncpus = 2\n", 2, "not valid TOML"),
        ("slurm = 3\n", 1, "is a table: [slurm]"),
        ("profile = 'big'\n", 1, "must be tables"),
        ("[profile]\nbig = 1\n", 2, "must be a table"),
        ("default_profile = 1\n", 1, "the name of a profile"),
        ("default_profile = 'big'\n", None, "is in no settings file"),
        ("executor = 'moon'\n", 1, "must be local or slurm, not 'moon'"),
        ("cpus = true\n", 1, "above 0"),
        ("cpus = inf\n", 1, "above 0"),
        ("drop_intermediates = 'yes'\n", 1, "true or false"),
        ("slurm.partition = ''\n", 1, "in quotes"),
        ("slurm = { partition = 3 }\n", 1, "in quotes"),
        ("[slurm]\ninterval = '-3s'\n", 2, "duration"),
        ("[slurm]\noptions = 'one'\n", 2, "list of texts"),
    ],
)
def test_one_thing_that_is_wrong_is_told_with_its_line(files, text, line, says):
    with pytest.raises(SettingsError) as caught:
        resolve(*files(project=text))
    (problem,) = caught.value.problems
    assert problem.line == line
    assert says in str(problem)


def test_a_file_that_is_not_text_is_named(files):
    place = files()
    (place[0] / "canard.toml").write_bytes(b"cpus = \xff\n")
    with pytest.raises(SettingsError, match="cannot be read"):
        resolve(*place)


def test_a_line_of_a_long_text_that_looks_like_a_key_does_not_move_the_others(files):
    place = files(project='work = """\nslots = 9\n"""\nslots = "x"\n')
    with pytest.raises(SettingsError) as caught:
        resolve(*place)
    assert [problem.column for problem in caught.value.problems] == ["slots"]


def test_variables_spell_lists_tables_flags_and_home(files):
    launch, environ = files(
        CANARD_PIPE_LIMITS="licence=2, gpu", CANARD_PIPE_SLURM_OPTIONS="--exclusive,--nice=5",
        CANARD_PIPE_DROP_INTERMEDIATES="yes", CANARD_PIPE_CPUS="1.5", CANARD_PIPE_SLURM_INTERVAL="30s",
    )  # fmt: skip
    settings = resolve(launch, environ)
    assert settings["limits"] == {"licence": 2, "gpu": 1}
    assert settings["slurm.options"] == ("--exclusive", "--nice=5")
    assert (settings["drop_intermediates"], settings["cpus"], settings["slurm.interval"]) == (True, 1.5, 30.0)


def test_paths_know_home_and_variables(files, monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    monkeypatch.setenv("HOME", "/home/me")
    settings = resolve(*files(project='work = "$SCRATCH/work"\nresults = "~/results"\n'))
    assert (settings["work"], settings["results"]) == ("/scratch/me/work", "/home/me/results")


def test_every_setting_has_a_kind_words_and_a_variable_of_its_own():
    assert all(key.kind in KINDS and key.what for key in KEYS)
    assert len({key.variable for key in KEYS}) == len(KEYS)
