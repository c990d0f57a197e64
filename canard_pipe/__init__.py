"""canard-pipe runs the same steps over many samples and gets every sample to its end, whatever dies on the way.

What a pipeline file needs::

    from canard_pipe import Pipeline, SampleRow, InputFile, Escalate

The engine by itself::

    import canard_pipe

    with canard_pipe.open("state.duckdb") as db:
        db.spawn("align", {"depth": 30}, id="sample-101")
        canard_pipe.work(db, {"align": align}, idle_timeout=0)

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canard_pipe.engine.attempt import Outcome, run
    from canard_pipe.engine.retry_policy import RetryPolicy
    from canard_pipe.errors import (
        BudgetError,
        CanardError,
        CloseError,
        CommandError,
        CommandFailed,
        CommandNotStarted,
        CommandTimeout,
        ConflictError,
        ConnectionClosed,
        ExtensionError,
        FailureRecordingError,
        HandlerExit,
        InputError,
        InputFileError,
        LeaseLost,
        MaintenanceError,
        MapFailed,
        OutputError,
        OwnerUnreachable,
        ParameterError,
        PipelineFileError,
        ProtocolError,
        PublishError,
        ReplayError,
        RestoreError,
        ResultUnavailable,
        SampleSkipped,
        SchemaError,
        SettingsError,
        SheetError,
        SpawnConflict,
        StateHeld,
        StorageError,
        TaskReleased,
        TaskSuspended,
        ValueEncodeError,
    )
    from canard_pipe.execution.resources import Escalate
    from canard_pipe.execution.retry import Tries
    from canard_pipe.pipeline.api import connect, serve, work
    from canard_pipe.pipeline.api import open as open
    from canard_pipe.pipeline.definition import Pipeline
    from canard_pipe.pipeline.rows import FileCheck, InputFile, SampleRow

__version__ = "0.1.0"

_HOMES = {
    "open": "canard_pipe.pipeline.api",
    "work": "canard_pipe.pipeline.api",
    "run": "canard_pipe.engine.attempt",
    "Outcome": "canard_pipe.engine.attempt",
    "connect": "canard_pipe.pipeline.api",
    "serve": "canard_pipe.pipeline.api",
    "Pipeline": "canard_pipe.pipeline.definition",
    "SampleRow": "canard_pipe.pipeline.rows",
    "InputFile": "canard_pipe.pipeline.rows",
    "FileCheck": "canard_pipe.pipeline.rows",
    "Escalate": "canard_pipe.execution.resources",
    "RetryPolicy": "canard_pipe.engine.retry_policy",
    "Tries": "canard_pipe.execution.retry",
}

# `open` is public too, but not for `import *`: it would hide Python's own.
__all__ = [
    "BudgetError", "CanardError", "CloseError", "CommandError", "CommandFailed", "CommandNotStarted",
    "CommandTimeout", "ConflictError", "ConnectionClosed", "Escalate", "ExtensionError", "FailureRecordingError",
    "FileCheck", "HandlerExit", "InputError", "InputFile", "InputFileError", "LeaseLost", "MaintenanceError",
    "MapFailed", "Outcome", "OutputError", "OwnerUnreachable", "ParameterError", "Pipeline", "PipelineFileError",
    "ProtocolError", "PublishError", "ReplayError", "RestoreError", "ResultUnavailable", "RetryPolicy",
    "SampleRow", "SampleSkipped", "SchemaError", "SettingsError", "SheetError", "SpawnConflict", "StateHeld",
    "StorageError", "TaskReleased", "TaskSuspended", "Tries", "ValueEncodeError", "__version__", "connect", "run",
    "serve", "work",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "canard_pipe.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
