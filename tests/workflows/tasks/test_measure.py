"""A run that is followed, and which layers are read; nothing is measured here (see
test_sweep.py)."""

import json
import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest

from tests.helpers import official_files
from xlingjax.cli.tasks import require_read
from xlingjax.config import task as benchmark
from xlingjax.data.labelled.records import Bitext
from xlingjax.errors import UserError
from xlingjax.inference.sentences import Sentences
from xlingjax.tasks import suite_tasks, task_named
from xlingjax.workflows.tasks import follow as following
from xlingjax.workflows.tasks import retrieval
from xlingjax.workflows.tasks.follow import follow
from xlingjax.workflows.tasks.measure import Measurement, languages_learnt
from xlingjax.workflows.tasks.retrieval import Search, States, states


class Run:
    """A run's folder, and a clock by which things happen there while `follow` waits."""

    def __init__(self, folder):
        self.folder, self.now, self.events, self.measured, self.said = folder, 0.0, {}, [], []
        folder.mkdir()
        (folder / "run.json").write_text("{}")

    def checkpoint(self, step):
        (self.folder / "checkpoints" / str(step)).mkdir(parents=True)

    def delete(self, step):
        shutil.rmtree(self.folder / "checkpoints" / str(step))

    def ends(self, reason="finished"):
        (self.folder / "result.json").write_text(json.dumps({"exit_reason": reason}))

    def restarts(self):
        (self.folder / "result.json").unlink()

    def at(self, minute, event, *arguments):
        self.events[60.0 * minute] = lambda: event(*arguments)

    def wait(self, seconds):
        self.now += seconds
        for when in [when for when in self.events if when <= self.now]:
            self.events.pop(when)()

    def follow(self, **more):
        request = Measurement("xtreme", "", "data", str(self.folder.parent / "out"))
        clock = {"clock": lambda: self.now, "wait": self.wait}
        return follow(request, str(self.folder), dict, self.said.append, **clock, **more)


@pytest.fixture
def run(tmp_path, monkeypatch):
    made = Run(tmp_path / "run")

    def opened(source, mesh):
        step = int(source.rpartition("@")[2])
        if not (made.folder / "checkpoints" / str(step)).is_dir():
            raise UserError(f"no checkpoint {step}")
        return made

    def measured(measurement, trained, step, *_):
        made.measured.append(step)

    monkeypatch.setattr(following, "open_run", opened)
    monkeypatch.setattr(following, "measure_checkpoint", measured)
    return made


def test_checkpoints_are_measured_until_the_run_has_finished(run):
    run.checkpoint(10)
    run.at(30, run.checkpoint, 20)
    run.at(80, run.checkpoint, 30)
    run.at(81, run.ends)
    assert run.follow() == 0 and run.measured == [10, 20, 30] and run.now == 81 * 60


def test_a_deleted_checkpoint_is_passed_over(run, monkeypatch):
    for step in (10, 20, 30, 40):
        run.checkpoint(step)
    run.ends()
    unread = following.open_run

    def opened(source, mesh):
        if source.endswith("@20"):  # while the one before it was measured
            run.delete(20)
        if source.endswith("@30"):  # half of its files are there still
            run.at(0, run.delete, 30)
            raise UserError("cannot be read")
        return unread(source, mesh)

    monkeypatch.setattr(following, "open_run", opened)
    assert run.follow() == 0 and run.measured == [10, 40]
    assert [line.split(":")[0] for line in run.said] == ["step 20", "step 30"]
    assert "KEEP_CHECKPOINTS" in run.said[0]


def test_a_checkpoint_that_stays_and_cannot_be_read_is_an_error(run, monkeypatch):
    run.checkpoint(10)

    def opened(_, mesh):
        raise UserError("cannot be read")

    monkeypatch.setattr(following, "open_run", opened)
    with pytest.raises(UserError, match="cannot be read"):
        run.follow()


def test_a_run_that_writes_nothing_any_more_is_given_up(run):
    run.checkpoint(10)
    run.at(50, (run.folder / "metrics.jsonl").write_text, "{}\n")
    with pytest.raises(
        UserError, match=r"nothing was written there for 60 minutes .* \(after step 10\): start it"
    ):
        run.follow()
    assert run.now == 110 * 60 and run.measured == [10]
    run.at(100_000, run.ends)
    assert run.follow(patience=0, pause=600) == 0
    with pytest.raises(UserError, match="no such folder"):
        follow(Measurement("xtreme", "", "data", str(run.folder)), str(run.folder / "none"))


def test_a_run_that_was_asked_to_stop_may_go_on(run):
    run.checkpoint(10)
    run.ends("preempted")
    run.at(20, run.restarts)
    run.at(70, run.checkpoint, 20)
    run.at(71, run.ends)
    assert run.follow() == 0 and run.measured == [10, 20]


def test_which_states_are_read():
    assert states("retrieval", 12) == States(8, "mean", (8,), ("mean",))
    mined = states("mining", 24)
    assert (mined.pooling, mined.layer) == ("first", 8)

    def read(layers=(), poolings=()):
        found = states("retrieval", 12, None, layers, poolings)
        return found.layer, found.pooling, found.layers, found.poolings

    every = ("mean", "mean_no_special", "first")
    assert read((3,), ("first",)) == (3, "first", (3,), ("first",))
    # of several the row and the submission are those of the paper
    assert read((3, 0)) == (8, "mean", (0, 3, 8), ("mean",))
    assert read(("all",), ("all",)) == (8, "mean", tuple(range(13)), every)
    assert read((), ("first", "mean_no_special")) == (8, "mean", (8,), every)
    with pytest.raises(UserError, match="layer 13: this model has layers 0"):
        read((2, 13))


def test_a_run_reads_its_own_states():
    own = Sentences(None, "mean", "query: ", True, 512)
    assert states("retrieval", 12, own) == states("mining", 12, own)
    assert states("mining", 12, own) == States(12, "mean", (12,), ("mean",), "query: ", 512)

    def said(*given):
        return states("retrieval", 12, *given).said()

    assert said(own) == "layer 12, pooled by mean, prefix 'query: ', at most 512 tokens"
    assert said(own, (3,), ("first",), "") == "layer 3, pooled by first, at most 512 tokens"
    assert said(None, (), (), "passage: ") == "layer 8, pooled by mean, prefix 'passage: '"
    assert said(Sentences(5, "first"), ("all",)) == "layer 5, pooled by first"


def test_trained_tasks_read_no_layer():
    tasks = {task.name: task for task in suite_tasks("xtreme")}

    def check(names, layer=None, pooling=None, prefix=None):
        given = Namespace(layer=layer, pooling=pooling, prefix=prefix)
        require_read(given, [tasks[name] for name in names.split()])

    check("xnli")
    check("tatoeba", ["all"], ["all"])
    check("bucc2018", [3])
    check("xnli tatoeba bucc2018", [3])
    refused = "--layer and --pooling: only retrieval and mining read this"
    with pytest.raises(UserError, match=refused):
        check("xnli udpos", [3], ["first"])
    for given in ({"layer": ["all"]}, {"layer": [1, 2]}, {"pooling": ["all"]}):
        with pytest.raises(UserError, match="bucc2018 is mined from one layer and pooling"):
            check("tatoeba bucc2018", **given)
    check("tatoeba bucc2018", prefix="all")
    with pytest.raises(UserError, match="--prefix: only retrieval and mining"):
        check("xnli", prefix="")


# ---- what a run was trained on -------------------------------------------------------------------


def test_the_recipe_tells_which_languages_were_learnt():
    def learnt(**macros):
        return languages_learnt(macros)

    assert learnt() is None and learnt(LENGTH=4) is None  # not "no language"
    assert learnt(TRAIN_LANGUAGES="en", TRANSLATED=None) == {"en"}
    assert learnt(TRAIN_LANGUAGES=None, TRANSLATED="de") == {"de"}
    assert learnt(TRAIN_LANGUAGES="ar bg de", TRANSLATED="zh") == {"ar", "bg", "de", "zh"}
    assert learnt(TRAIN_LANGUAGES="en", TRANSLATED="all") is None


def test_the_dev_sets_know_translations_as_learnt(tmp_path):
    given = {"train": 24, "dev": 12, "test": 12, "hidden": False}
    data = official_files.write(tmp_path, ("de", "en", "ru"), **given) / "xtreme"
    corpus = SimpleNamespace(vocabulary=None, languages=())

    def trained_on(**more):
        return benchmark.task_score(corpus, "xtreme/xnli", str(data), **more)()[0].trained_on

    assert trained_on() == ["en"] and trained_on(translated="all") == ["de", "en", "ru"]
    assert trained_on(trained_on=None, translated="de") == ["de"]


def test_a_task_goes_on_with_the_languages_that_are_left(tmp_path, monkeypatch, capsys):
    searched = []

    def found(run, bitext, language, **options):
        searched.append(language)
        return {"mean": {1: [1, 0], 2: [0, 1]}}

    monkeypatch.setattr(retrieval, "predict_layers", found)
    usual = States(2, "mean", (1, 2), ("mean",))

    def search(*languages, reads=usual, text="a"):
        of = Search(None, task_named("xtreme/tatoeba"), "", reads, tmp_path / "found", ["de", "fr"])
        gold = frozenset({("x-0", "en-0"), ("x-1", "en-1")})
        bitext = Bitext((("x-0", text), ("x-1", "b")), (("en-0", "c"), ("en-1", "d")), gold)
        return of, [of([bitext], "test", language) for language in languages]

    search("de")  # and killed
    of, lines = search("de", "fr")
    assert searched == ["de", "fr"] and lines == [[0, 1], [0, 1]]
    assert of.layers == {"mean": {code: {"1": 0.0, "2": 100.0} for code in ("de", "fr")}}
    told = capsys.readouterr().out
    assert told == "xtreme/tatoeba, test, de (1 of 2 languages): found by an earlier start\n"
    # Of other settings or other text it is found anew.
    search("de", reads=States(1, "mean", (1,), ("mean",), prefix="query: "))
    search("fr", text="another")
    assert searched == ["de", "fr", "de", "fr"]
