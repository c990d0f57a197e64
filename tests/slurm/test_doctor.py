"""doctor --slurm on a real cluster: all is well, and what is said when it is not."""

from __future__ import annotations

import json

from tests.cli.pipelines import canard


def look(site, *arguments, seconds=100):
    done = canard(site.folder, "doctor", "--json", "--slurm", *arguments, seconds=seconds)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def bad(findings):
    return [(each["level"], each["topic"]) for each in findings if each["level"] != "ok"]


def test_a_site_that_is_ready_and_a_self_test_on_it(site):
    status, found = look(site)
    assert (status, bad(found)) == (0, [])
    said = " ".join(each["message"] for each in found)
    for words in ("the accounting answers", "(MaxJobCount)", "main: time without a limit", "squeue --name",
                  "sacct --name", "has written into", "starts Python", "their results are as expected"):  # fmt: skip
        assert words in said
    assert sum("agree on the time" in each["message"] for each in found) == 3
    assert site.cluster.call(["squeue", "-h"]).stdout.strip() == ""
    assert sorted(path.name for path in site.folder.iterdir()) == ["canard.toml"]


def test_a_job_that_does_not_start_is_cancelled(site):
    """A hold by its options: the site takes it, and it never starts."""
    site.settings(options='["--begin=now+1hour"]')
    status, found = look(site, "--wait", "2s", "--no-self-test")
    assert (status, bad(found)) == (0, [("warn", "job")])
    assert site.cluster.call(["squeue", "-h"]).stdout.strip() == ""


def test_a_partition_that_is_not_there(site):
    site.settings(partition='"nope"', account='"nobody"')
    status, found = look(site)
    assert status == 1
    assert bad(found) == [("fail", "partition"), ("warn", "account"), ("fail", "partition"), ("fail", "job")]
    assert any("Invalid partition name specified" in each["message"] for each in found)
    assert not any(each["topic"] == "self-test" for each in found)  # it could not end either
