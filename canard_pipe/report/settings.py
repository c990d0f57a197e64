"""The table of the settings."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from canard_pipe.pipeline.settings.resolve import Setting, Settings
from canard_pipe.report.wording import duration, memory, visible


def settings_table(settings: Settings) -> Table:
    """Return one line a setting: name, value, where it comes from."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in ("setting", "value", "from"):
        table.add_column(name, overflow="fold")
    for setting in settings.by_name.values():
        style = "dim" if setting.source == "default" else ""
        table.add_row(setting.key.name, Text(visible(_spelled(setting))), visible(setting.source), style=style)
    return table


def _spelled(setting: Setting) -> str:
    value: Any = setting.value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if setting.key.kind == "size":
        return memory(value)
    if setting.key.kind == "duration":
        return duration(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={amount}" for name, amount in value.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)
