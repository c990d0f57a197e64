"""The page itself: one HTML file that asks for nothing, is readable without JavaScript, and bounded in size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2

from canard_pipe.report import wording
from canard_pipe.report.items import by_map, progress
from canard_pipe.report.page import timeline
from canard_pipe.report.page.failures import failures
from canard_pipe.report.page.figures import RowFigures, by_row, by_step
from canard_pipe.report.page.material import Material
from canard_pipe.report.page.tries import Tried
from canard_pipe.report.rows import PlanRow, RunRow
from canard_pipe.report.status import remark

MOST_COMMANDS = 60_000
FIRST_ROWS = 100  # on each page of the table, and what is seen without JavaScript
MOST_RUNS = 20
LONGEST_REMARK = 160
GENERATOR = '<meta name="generator" content="canard-pipe'
_NOT_SHOWN = ("folder", "sheet.folder", "sheet.twins")  # of the settings: told by others, or about notes only


def render(material: Material, *, version: str, now_us: int) -> str:
    """Return the page. ``version`` is that of canard-pipe."""
    figures = by_row(material.tries)
    last_bad = {each.seq: each for each in material.tries if each.bad}
    groups, more_groups = failures(material.status.rows, material.causes, last_bad, material.root)
    details = len(material.tries) <= MOST_COMMANDS
    table = _table(material, figures, details=details)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "duration": _or_nothing(wording.duration), "size": _or_nothing(wording.size),
        "memory": _or_nothing(wording.memory), "time": _or_nothing(wording.local_time), "visible": wording.visible,
    }  # fmt: skip
    return environment.get_template("page.html").render(
        material=material,
        run=material.status.run,
        runs=[_run(run) for run in material.runs[:MOST_RUNS]],
        more_runs=max(len(material.runs) - MOST_RUNS, 0),
        version=version,
        now_us=now_us,
        counts=[(state, _count(material, state)) for state in wording.STATES if _count(material, state)],
        others=[(kind, wording.states_in_words(states)) for kind, states in material.status.counts.items()
                if kind != "sample"],
        totals=_totals(material, figures),
        groups=groups,
        more_groups=more_groups,
        steps=by_step(material.tries),
        timeline=timeline.timeline(material.tries, now_us),
        timeline_module=timeline,
        table=table,
        not_shown=material.status.total - len(material.status.rows),
        details=details,
        facts=_facts(material),
        first_rows=FIRST_ROWS,
        generator=GENERATOR,
        most_commands=MOST_COMMANDS,
    )


def _table(material: Material, figures: Mapping[int, RowFigures], *, details: bool) -> dict[str, Any]:
    """Return the table of rows as the page's script reads it: lists, with words that come often told by number."""
    labels: dict[str, int] = {}
    rows = []
    for row in material.status.rows:
        own = figures.get(row.seq or -1, RowFigures())
        files, size = material.published.get(row.seq or -1, (0, 0))
        rows.append([
            row.label, row.kind, row.state, len(row.steps), _where(row), own.tries, own.failed,
            round(own.seconds, 3), round(own.cpu_seconds, 3), own.peak_bytes,
            "" if own.started_us is None else wording.local_time(own.started_us),
            "" if own.ended_us is None else wording.local_time(own.ended_us), files, size,
            wording.first_line(remark(row), LONGEST_REMARK),
            [_command(*each, labels) for each in zip(own.last, own.counts, strict=True)] if details else [],
        ])  # fmt: skip
    return {"rows": rows, "labels": list(labels), "page": FIRST_ROWS, "states": list(wording.STATES)}


def _command(each: Tried, count: int, labels: dict[str, int]) -> list[Any]:
    """Return one command of a row: its latest try."""
    number = labels.setdefault(each.label, len(labels))
    ended = "" if each.good else _end(each)
    took = None if each.seconds is None else round(each.seconds, 2)
    return [number, each.item, each.state, ended, count, took, each.peak_memory_bytes, each.memory_bytes, each.host]


def _end(each: Tried) -> str:
    if each.live:
        return ""
    if each.exit_code is None and each.signal is None:
        return each.cause or ""
    return wording.exit_in_words(each.exit_code, each.signal)


def _where(row: PlanRow) -> str:
    """Return the step that a row is in, and how far its maps are."""
    now = f"{row.now_state or 'in'} {wording.visible(row.now)}" if row.now else ""
    maps = [f"{wording.visible(name)} {progress(items)}" for name, items in by_map(row.items).items()]
    return ", ".join(part for part in (now, *maps) if part)


def _totals(material: Material, figures: Mapping[int, RowFigures]) -> dict[str, float]:
    return {
        "commands": sum(len(own.last) for own in figures.values()),
        "tries": len(material.tries),
        "failed": sum(own.failed for own in figures.values()),
        "seconds": sum(own.seconds for own in figures.values()),
        "cpu_seconds": sum(own.cpu_seconds for own in figures.values()),
        "files": sum(files for files, _ in material.published.values()),
        "bytes": sum(size for _, size in material.published.values()),
    }


def _facts(material: Material) -> list[tuple[str, str]]:
    """Return what ran with what, as names and texts."""
    run = material.runs[0]
    facts = [
        ("pipeline", f"{run.pipeline}: {run.pipeline_file}"),
        ("pipeline file, SHA-256", material.digest),
        ("sheet", str(run.sheet_file)),
        *((f"parameter {name}", value) for name, _, value in (text.partition("=") for text in run.params)),
        *((name, str(value)) for name, value in material.versions.items() if value is not None),
    ]
    for name, value in sorted(run.settings.items()):
        inside = value.items() if isinstance(value, Mapping) else [("", value)]
        for inner, given in inside:
            whole = f"{name}.{inner}" if inner else name
            if whole not in _NOT_SHOWN and given not in (None, [], "", False):
                facts.append((whole, wording.memory(given) if name == "memory_bytes" else _text(given)))
    return facts


def _text(value: object) -> str:
    if isinstance(value, str | int | float) or not isinstance(value, list | tuple | dict):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _run(run: RunRow) -> dict[str, Any]:
    ended = run.ended_us
    return {
        "started": run.started_us, "ended": ended, "seconds": None if ended is None else (ended - run.started_us) / 1e6,
        "host": run.host, "pid": run.pid, "exit_status": run.exit_status,
        "executor": run.settings.get("executor", ""), "sheet": run.sheet_file.name,
    }  # fmt: skip


def _count(material: Material, state: str) -> int:
    return material.status.counts.get("sample", {}).get(state, 0)


def _or_nothing(spell: Any) -> Any:
    return lambda value: "" if value is None else spell(value)


def _source(name: str) -> str:
    return (resources.files("canard_pipe.report.page") / name).read_text(encoding="utf-8")
