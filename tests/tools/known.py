"""The register of facts: what each sample of facts.py does, by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Fact = Callable[[Path, Any], None]
FACTS: dict[str, Fact] = {}


def fact(function: Fact) -> Fact:
    """Take a function of the data folder and the context in as a fact."""
    FACTS[function.__name__] = function
    return function
