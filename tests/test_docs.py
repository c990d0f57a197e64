"""The pages: links lead somewhere, Python blocks are Python, and the README names every command."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("pipelines/**/*.md")])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def broken_links(text: str, folder: Path) -> list[str]:
    """Return the relative links of a page that lead to no file or folder."""
    links = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text)
    return [link for link in links if not re.match(r"[a-z]+:", link) and not (folder / link).exists()]


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    assert broken_links(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_broken_link_is_found(tmp_path):
    assert broken_links("see [it](nowhere.md) and [that](https://example.org)", tmp_path) == ["nowhere.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_is_python(page):
    for block in python_blocks(page.read_text(encoding="utf-8")):
        ast.parse(block)


def test_the_index_names_every_page_of_docs():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_the_readme_names_every_command_and_no_other():
    from canard_pipe.cli.main import COMMANDS

    table = re.search(r"^## Commands\n(.*?)^## ", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert table is not None
    assert re.findall(r"^\| `(\w+)", table.group(1), re.MULTILINE) == list(COMMANDS)


def test_the_page_of_settings_names_every_one_and_its_example_is_right(tmp_path):
    from canard_pipe.pipeline.settings.files import read_file
    from canard_pipe.pipeline.settings.keys import KEYS

    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE) == [key.name for key in KEYS]
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "canard.toml").write_text(example)
    found = read_file(tmp_path / "canard.toml")
    assert found is not None
    assert found.problems == []
    assert set(found.profiles) == {"cluster", "laptop"}


def test_every_sql_block_runs_on_a_new_state(tmp_path):
    from canard_pipe.engine.database import Database

    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```sql\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    assert len(blocks) >= 5
    with Database(None, root=tmp_path) as database:
        for block in blocks:
            columns, rows = database.store.sql(block)
            assert columns
            assert rows == []


def examples(text: str) -> list[tuple[str, str]]:
    """Return the Python blocks of a page, each with the text block that follows it at once, or nothing."""
    found = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL)
    return [(code, said) for code, said in found]


def run_examples(text: str, said: Callable[[], str]) -> list[str]:
    """Execute the blocks in one namespace; return what differs. ``said`` returns what was printed since last time."""
    namespace: dict[str, object] = {}
    different = []
    for code, expected in examples(text):
        exec(compile(code, "<page>", "exec"), namespace)
        printed = said()
        if printed != expected:
            different.append(f"{code}\nprints\n{printed}\nnot\n{expected}")
    return different


def test_the_examples_of_the_engine_print_what_the_page_says(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(examples(page)) >= 10
    assert run_examples(page, lambda: capsys.readouterr().out) == []


def test_the_pages_name_every_error_of_the_engine_and_every_type_of_value():
    """F24."""
    from canard_pipe import errors
    from canard_pipe.engine import values

    engine = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    section = engine[engine.index("\n## Errors"):]
    of_layers_above = {
        "PipelineFileError", "ParameterError", "SettingsError", "SheetError", "BudgetError", "InputFileError",
        "PublishError", "HandlerExit", "SampleSkipped",
    }
    named = [
        name for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CanardError) and not name.startswith("_")
    ]
    assert [name for name in named if name not in of_layers_above and f"`{name}`" not in section] == []
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^Values are (.*?)\.\s", page, re.MULTILINE | re.DOTALL)
    others = {"None", "bool", "int", "float", "text", "paths", "lists", "tuples", "dicts"}
    plural = {"date": "dates", "datetime": "datetimes", "timedelta": "timedeltas"}
    scalars = {plural.get(kind.__name__, kind.__name__) for kind, *_ in values._SCALARS if kind is not values.Skipped}
    assert (others | scalars) - set(re.findall(r"\w+", sentence)) == set()


def test_an_example_that_prints_something_else_is_found(capsys):
    page = "```python\nx = 1\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n"
    assert len(run_examples(page, lambda: capsys.readouterr().out)) == 1
