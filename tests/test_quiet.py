"""What the terminal is spared."""

import logging
import sys
from types import SimpleNamespace

from xlingjax.quiet import forget_abandoned_reads


def test_only_abandoned_reads_are_forgotten(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    logger = logging.getLogger("asyncio")
    before = logger.level
    try:
        forget_abandoned_reads()
        assert not logger.isEnabledFor(logging.ERROR)
        for message in ("Event loop is closed", "something else"):
            sys.unraisablehook(SimpleNamespace(exc_value=RuntimeError(message)))
        assert [str(one.exc_value) for one in shown] == ["something else"]
    finally:
        logger.setLevel(before)
