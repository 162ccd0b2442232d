"""`xlingjax translate` and `generate`: a line for each line, in order, also when interrupted; and
what is refused."""

import dataclasses
import functools
import io
import json
import shutil
import signal
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.helpers.small_corpus import ENGLISH, GERMAN, write
from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import open_run
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import preset
from xlingjax.model.decoding import Decoding
from xlingjax.training.checkpoint_params import HashedPath
from xlingjax.workflows.files import translate as generation
from xlingjax.workflows.files import translate as translate_input

SHAPE = dict(
    layers=1,
    decoder_layers=1,
    dim=16,
    heads=2,
    ffn=32,
    max_positions=40,
    num_languages=2,
    dropout=0.0,
    init_std=1.0,
    norm_order="pre",
    vocab_multiple=16,
)


@pytest.fixture(scope="module", autouse=True)
def opened_once():
    """A run that is opened again is the same model, and nothing is compiled twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "open_run", functools.cache(open_run))
        yield


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    root = tmp_path_factory.mktemp("vocabulary")
    for code, lines in (("en", ENGLISH), ("de", GERMAN)):
        write(root / "mono" / code / "a.txt", [f"{line} {i}" for i in range(30) for line in lines])
    assert (
        main.main(["vocab", "--mono", f"{root}/mono", "--size", "80", "--to", str(root / "vocab")])
        == 0
    )
    return root / "vocab"


def workdir(folder, vocabulary, languages=("de", "en"), **overrides):
    """A run with random weights as its checkpoint of step 7."""
    size = json.loads((vocabulary / "vocab.json").read_text())["size"]
    model = build_model(preset("tiny", **{**SHAPE, "vocab_size": size, **overrides}))
    params = jax.jit(model.init)(jax.random.key(3))
    params["embeddings"]["tokens"]["embedding"] *= 0.2
    shutil.copytree(vocabulary, folder)
    record = {"model": dataclasses.asdict(model.config), "languages": languages, "parameters": 0}
    record["parameters"] = count_parameters(model.config)
    (folder / "run.json").write_text(json.dumps(record))
    with ocp.Checkpointer(
        ocp.StandardCheckpointHandler(), temporary_path_class=HashedPath
    ) as writer:
        writer.save(folder / "checkpoints" / "7" / "params", args=ocp.args.StandardSave(params))
    return str(folder)


@pytest.fixture(scope="module")
def run(vocabulary, tmp_path_factory):
    return workdir(tmp_path_factory.mktemp("run") / "run", vocabulary)


LINES = [*GERMAN, "", *reversed(GERMAN), "  ", "Es regnet."]
FAST = ("--max-length", "0,7", "--beams", "2")


def translate(run, *more, verb="translate"):
    way = ("--target", "en") if verb == "translate" else ()
    return main.main([verb, run, *way, *FAST, *more])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write(tmp_path_factory.mktemp("source") / "de.txt", LINES)


@pytest.fixture(scope="module")
def expected(run, source, tmp_path_factory):
    path = tmp_path_factory.mktemp("expected") / "en.txt"
    assert translate(run, "--input", source, "--to", str(path)) == 0
    return path.read_text().split("\n")[:-1]


@pytest.mark.long
def test_a_line_for_each_line(run, source, expected, capsys, monkeypatch):
    trained = open_run(run)  # on one device; the command's are eight
    decoding = Decoding(beams=2, max_length=(0, 7))
    one_device = Generator(
        trained.model, trained.params, trained.vocabulary, trained.languages, decoding
    )
    assert expected == [best.text for best, *_ in one_device.generate(LINES, "de", "en")]
    assert [not line for line in expected] == [not line.strip() for line in LINES]
    assert expected[0] != expected[1] and expected[0] == expected[8]
    assert translate(run, "--input", source) == 0
    told = capsys.readouterr()
    assert told.out.split("\n")[:-1] == expected
    assert told.err.startswith("11 lines, ") and told.err.count("\n") == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert translate(run, "--source", "de") == 0
    assert capsys.readouterr().out.split("\n")[:-1] == expected


@pytest.mark.long
def test_n_best_lists_and_references(run, source, expected, tmp_path, capsys):
    references = write(tmp_path / "en.txt", [line or "x" for line in expected])
    words = (
        "--input",
        source,
        "--n-best",
        "2",
        "--to",
        str(tmp_path / "out"),
        "--references",
        references,
    )
    assert translate(run, *words) == 0
    told = capsys.readouterr().err
    lines = [line.split(" ||| ") for line in (tmp_path / "out").read_text().splitlines()]
    assert [int(number) for number, *_ in lines] == [n // 2 for n in range(22)]
    assert [text for _, text, _ in lines[::2]] == expected
    scores = np.array([float(score) for *_, score in lines]).reshape(-1, 2)
    assert (scores[:, 0] >= scores[:, 1]).all() and (scores[[4, 9]] == 0).all()
    for part in ("BLEU ", "tok:13a", "chrF ", "ROUGE-L ", "wrong language "):
        assert part in told
    # What the search says is what `--score` says, where a text is tokenised as it was written.
    best = write(tmp_path / "best.txt", expected)
    assert translate(run, "--input", source, "--score", best) == 2  # --beams
    capsys.readouterr()
    assert main.main(["translate", run, "--target", "en", "--input", source, "--score", best]) == 0
    scored = capsys.readouterr().out.split("\n")[:-1]
    assert len(scored) == 11 and scored[4] == scored[9] == ""
    score, total, tokens = map(float, scored[0].split("\t"))
    assert score == pytest.approx(total / tokens, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    "ends, stop, status", [("\n", None, 130), ("\nhalf a li", signal.SIGTERM, 75)]
)
def test_an_interrupted_file_goes_on(
    run, source, expected, tmp_path, capsys, monkeypatch, ends, stop, status
):
    monkeypatch.setattr(translate_input, "CHUNK", 4)
    whole, calls = Generator.generate, []

    def interrupted(self, lines, *arguments, **options):
        calls.append(lines)
        if len(calls) == 2:
            if (
                stop is None
            ):  # Ctrl-C; the signal itself is ignored where the tests run in the background
                raise KeyboardInterrupt
            signal.raise_signal(stop)
        return whole(self, lines, *arguments, **options)

    monkeypatch.setattr(Generator, "generate", interrupted)
    output = tmp_path / "en.txt"
    words = ("--input", source, "--to", str(output))
    assert translate(run, *words) == status
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    partial = tmp_path / "en.txt.partial"
    assert not output.exists() and "en.txt.partial: what is done" in capsys.readouterr().err
    assert partial.read_text() == "".join(f"{line}\n" for line in expected[:4])
    partial.write_text("\n".join(expected[:2]) + ends)  # as a kill may leave it

    def refused(*parts, words=words):
        assert translate(run, *words) == 2
        line = one_line(capsys)
        assert all(part in line for part in parts), line

    refused(
        "en.txt.partial was begun with other beams 2 (now 3): repeat",
        words=(*words, "--beams", "3"),
    )
    other = write(tmp_path / "de.txt", LINES[1:])
    refused("begun with other text of --input:", words=("--input", other, "--to", str(output)))
    record = (tmp_path / "en.txt.partial.json").read_text()
    (tmp_path / "en.txt.partial.json").unlink()
    refused("en.txt.partial.json, which says of what, is not", "remove")
    (tmp_path / "en.txt.partial.json").write_text(record)
    assert translate(run, *words) == 0
    assert output.read_text().split("\n")[:-1] == expected
    read = [line.strip() for line in LINES]
    assert calls[2:] == [
        tuple(read[2:6]),
        tuple(read[6:10]),
        tuple(read[10:]),
    ]  # what was done is not repeated
    assert "9 lines and 2 before" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de.txt", "en.txt"]


@pytest.mark.long
def test_generate_within_a_language(run, source, expected, capsys):
    assert translate(run, "--language", "de", "--input", source, verb="generate") == 0
    german = capsys.readouterr().out.split("\n")[:-1]
    assert len(german) == 11 and german != expected
    assert (
        translate(run, "--language", "de", "--target", "en", "--input", source, verb="generate")
        == 0
    )
    assert capsys.readouterr().out.split("\n")[:-1] == expected
    assert translate(run, "--input", source, verb="generate") == 2
    assert "Give --language, or --source and --target" in one_line(capsys)


@pytest.mark.long
def test_drawn_texts(run, source, capsys):
    def drawn(*more):
        words = [
            "translate",
            run,
            "--target",
            "en",
            "--input",
            source,
            "--max-length",
            "0,7",
            "--temperature",
            "1",
            *more,
        ]
        assert main.main(words) == 0
        return capsys.readouterr().out

    assert drawn("--seed", "1") == drawn("--seed", "1") != drawn("--seed", "2")


def one_line(capsys):
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.long
def test_refusals(run, vocabulary, source, tmp_path, capsys):
    def refused(*parts, run=run, words=("--input", source), to="en"):
        assert main.main(["translate", run, "--target", to, *words]) == 2
        line = one_line(capsys)
        assert all(part in line for part in parts), line

    short = write(tmp_path / "short.txt", LINES[:-1])
    long = write(tmp_path / "long.txt", ["Es regnet.", "Es regnet " * 30])
    refused("missing file", "run.json", run=str(tmp_path))
    refused("language 'fr' is not one of the run's: de, en", to="fr")
    refused("language 'fr' is not one of the run's", words=("--source", "fr", "--input", source))
    refused("no-such.txt", words=("--input", "no-such.txt"))
    refused(
        "line 2: ",
        "tokens, and the model's position table takes 40",
        "--truncate",
        words=("--input", long),
    )
    for option in ("--score", "--references"):
        refused(
            f"{option} {short} has 10 lines and the input 11",
            words=("--input", source, option, short),
        )
    refused("set beams=1, not 3", words=("--input", source, "--temperature", "1", "--beams", "3"))
    refused("n_best=6 must be from 1 to beams=5", words=("--input", source, "--n-best", "6"))
    refused("--top-k, --seed: only drawn tokens", words=("--top-k", "3", "--seed", "1"))
    refused(
        "--beams, --n-best: --score searches",
        words=("--score", short, "--beams", "3", "--n-best", "2"),
    )
    refused("'1.5' is not A,B", words=("--max-length", "1.5"))
    refused("is a file; choose", words=("--input", source, "--to", f"{source}/x"))
    refused("is a folder; name a file", words=("--input", source, "--to", str(tmp_path)))
    encoder = workdir(tmp_path / "encoder", vocabulary, decoder_layers=0)
    refused(encoder, "an encoder alone", "DECODER_LAYERS", run=encoder)
    three = workdir(tmp_path / "three", vocabulary, languages=("de", "en", "fr"), num_languages=3)
    refused("--from: which of de, fr", run=three)
    streams = workdir(tmp_path / "streams", vocabulary, streams=2)
    record = json.loads((tmp_path / "streams" / "run.json").read_text())
    record["model"]["streams"] = 0
    (tmp_path / "streams" / "run.json").write_text(json.dumps(record))
    refused("does not fit the model", "decoder/streams/embedding is not the model's", run=streams)
    assert translate(run, "--truncate", "--input", long) == 0


@pytest.mark.long
def test_a_file_that_is_read_is_not_written(run, tmp_path, capsys):
    source = write(tmp_path / "de.txt", LINES)
    (tmp_path / "link").symlink_to(source)
    references = "--input", f"{source}x", "--references", source
    for words, option in ((("--input", source), "input"), (references, "references")):
        assert translate(run, *words, "--to", str(tmp_path / "link")) == 2
        assert f"is the file of --{option}: name another one" in one_line(capsys)
    assert translate(run, "--source", "en", "--input", source) == 2
    assert "--source en --target en: name two languages" in one_line(capsys)


@pytest.mark.long
def test_what_was_not_learnt_and_what_came_out_empty_is_told(
    run, source, tmp_path, capsys, monkeypatch
):
    other = shutil.copytree(run, tmp_path / "run")
    record = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(
        json.dumps(record | {"stages": {"translation": {"directions": ["en-de"]}}})
    )
    whole = Generator.generate

    def emptied(self, lines, *arguments, **options):
        found = whole(self, lines, *arguments, **options)
        return [
            [dataclasses.replace(best[0], text="")] if n in (0, 2, 4) else best
            for n, best in enumerate(found)
        ]

    monkeypatch.setattr(Generator, "generate", emptied)
    assert translate(str(other), "--input", source) == 0
    note, told = capsys.readouterr().err.splitlines()
    assert note == f"note: {other} learnt en-de, not de-en"
    assert told.endswith(" s, 2 of them empty")  # the fifth was before


def test_a_line_of_standard_input_without_an_end(monkeypatch):
    monkeypatch.setattr(generation, "LONGEST_LINE", 100)
    given = io.TextIOWrapper(io.BytesIO(b"short\n" + b"a" * 1000))
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(UserError, match="standard input, line 2: over 0 MiB without an end of a"):
        list(generation.texts(None))
