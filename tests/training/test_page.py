"""The page that a run writes while it goes on."""

import signal

import pytest

from tests.helpers import tiny_run
from xlingjax.training import progress


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_a_page_takes_a_twentieth_of_the_time(monkeypatch, tmp_path):
    clock = Clock(monkeypatch)
    written = []

    def write():
        written.append(clock.now)
        clock.now += 3.0
        return tmp_path

    kept = progress.Page(write, pytest.fail)
    for now in (100.0, 104.0, 162.0, 163.5):
        clock.now = now
        kept.refresh()
    # It took 3 s, so 60 s pass from its end on before the next one.
    assert written == [100.0, 163.5]
    # At the end it is written whenever that is.
    assert kept.written() == tmp_path and len(written) == 3
    # Another process of the run has none.
    assert progress.Page(None, pytest.fail).written() is None


@pytest.mark.parametrize(
    "error, said",
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (KeyError("values"), "'values'"),
        (ValueError("first\nsecond"), "first"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_what_goes_wrong_in_a_page_is_one_line(error, said):
    lines = []

    def write():
        raise error

    kept = progress.Page(write, lines.append)
    kept.refresh()
    assert kept.written() is None
    assert lines == [f"the report was not written: {said}"] * 2


def test_a_run_that_is_asked_to_stop_writes_no_page(tmp_path, capsys):
    result = tiny_run.run(
        tmp_path,
        steps=4,
        objectives=("mlm",),
        signal_at=("SIGTERM", 2),
        write_page=lambda: pytest.fail("a page was written"),
    )
    assert result.exit_reason == "preempted"
    assert capsys.readouterr().out.splitlines()[-1] == (
        "preempted at step 2: the same command goes on from there"
    )
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    folder = tmp_path / "report.html"

    def write():
        # What the page shows of its run's end is there.
        folder.write_text((tmp_path / "result.json").read_text())
        return folder

    tiny_run.run(tmp_path, steps=4, objectives=("mlm",), write_page=write)
    assert '"exit_reason": "finished"' in folder.read_text()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"finished at step 4; its report: {folder}"
    # A finished run that is started again has the page that it has.
    tiny_run.run(tmp_path, steps=4, objectives=("mlm",), write_page=pytest.fail)
    assert capsys.readouterr().out.splitlines()[-1] == "finished at step 4"
