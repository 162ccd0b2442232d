"""The page that a run writes while it goes on."""

import pytest

from tests.helpers import tiny_run


def test_a_run_shows_its_page_after_an_evaluation(tmp_path):
    seen = []

    def write():
        seen.append(sorted(path.name for path in tmp_path.glob("result.json")))
        return tmp_path

    tiny_run.run(tmp_path, steps=2, objectives=("mlm",), dev=[3.0, 2.0, 1.0], write_page=write)
    assert seen == [[], ["result.json"]]


def test_a_run_that_is_asked_to_stop_writes_no_page(tmp_path, capsys):
    result = tiny_run.run(
        tmp_path,
        steps=4,
        objectives=("mlm",),
        signal_at=("SIGTERM", 2),
        write_page=lambda: pytest.fail("a page was written"),
    )
    assert result.exit_reason == "preempted"
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "preempted at step 2: the same command goes on from there"
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
    # What goes wrong in a page is one line.
    tiny_run.run(tmp_path, steps=5, objectives=("mlm",), write_page=lambda: [][0])
    assert "\nthe report was not written: list index" in capsys.readouterr().out
