"""What the terminal is spared."""

import logging
import sys
from types import SimpleNamespace

from xlingjax.runtime.quiet import forget_abandoned_reads


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
