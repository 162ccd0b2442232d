"""What the terminal is spared."""

import logging
import sys
from types import SimpleNamespace

from xlingjax.runtime.quiet import _is_told_nowhere_else, forget_abandoned_reads


def test_only_abandoned_reads_are_forgotten(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    monkeypatch.setattr(
        sys, "excepthook", lambda kind, value, trace: shown.append(SimpleNamespace(exc_value=value))
    )
    forget_abandoned_reads.cache_clear()
    logger = logging.getLogger("asyncio")
    before = logger.level
    try:
        forget_abandoned_reads()
        assert not logger.isEnabledFor(logging.ERROR)
        half_made = AttributeError("'_UnixSelectorEventLoop' object has no attribute '_ssock'")
        sys.unraisablehook(SimpleNamespace(exc_value=half_made))
        for message in ("Event loop is closed", "something else"):
            sys.unraisablehook(SimpleNamespace(exc_value=RuntimeError(message)))
            sys.excepthook(RuntimeError, RuntimeError(message), None)
        assert [str(one.exc_value) for one in shown] == ["something else"] * 2
    finally:
        forget_abandoned_reads.cache_clear()
        logger.setLevel(before)


def test_nothing_is_said_of_a_file_that_nobody_reads():
    """Orbax's own line, of a checkpoint that is told as damaged."""
    said = "Failed to json parse Metadata file: %s, file content: , error: %s"
    file = "run/checkpoints/6/_CHECKPOINT_METADATA"
    for name, shown in ((file, False), ("run/checkpoints/6/params/_METADATA", True)):
        record = logging.LogRecord("absl", logging.ERROR, "x.py", 1, said, (name, "y"), None)
        assert _is_told_nowhere_else(record) is shown
