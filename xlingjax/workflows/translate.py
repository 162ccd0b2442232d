"""What `translate` and `generate` do: a line of output for each line of input, in order, by file or
pipe.

The input is taken in chunks of some lines and the output appended chunk by chunk, so that memory is
bounded whatever its size, and a file that was interrupted goes on where it stopped.
"""

import contextlib
import itertools
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from xlingjax.data.other_formats import refuse_no_lines
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.text import bleu, chrf, rouge_l, wrong_language_rate
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.shutdown import stopped_by
from xlingjax.training.run_record import read_run_record
from xlingjax.workflows.translate_input import checked, chunks, spooled, texts
from xlingjax.workflows.translate_output import Partial, Pipe, made_with, scored, shown, text_of
from xlingjax.workflows.translate_progress import Meter
from xlingjax.workflows.translate_request import Request, apart


def write(request: Request) -> None:
    """Does it, and tells on standard error what it took. Raises UserError for whatever a user can
    repair, as far as the input is a file before the first line is written."""
    apart(request)
    for read in filter(None, (request.input, request.score, request.references)):
        refuse_no_lines(read)
    generator, source = opened(request)
    lines_each = request.decoding.n_best
    if request.score:
        lines_each = 1
    empty = 0
    with contextlib.ExitStack() as stack:
        path = request.input or None
        # Nothing but a pipe into a pipe goes on without knowing all lines.
        if path is None and (request.output or request.score or request.references):
            path = stack.enter_context(spooled())
        total = None
        if path is not None:
            total = checked(request, generator, path)
        if request.output:
            # Raised where it stands, so that the partial file is closed and named.
            stack.enter_context(stopped_by(signal.SIGTERM, signal.SIGHUP))
            output = Partial(request.output, made_with(request, source, path))
        else:
            output = Pipe()
        stack.enter_context(output)
        done = output.keep(lines_each)
        meter = stack.enter_context(Meter(total, done))
        best = []
        if request.references:
            # The first line of each input line is its best text.
            for line in itertools.islice(output.kept(), 0, None, lines_each):
                best.append(text_of(line, lines_each))
        to_score = itertools.repeat("")
        if request.score:
            to_score = texts(request.score)
        rows = zip(texts(path), to_score, strict=False)
        number = done
        for chunk in chunks(itertools.islice(rows, done, None)):
            lines, given = zip(*chunk, strict=True)
            where: dict[str, Any] = {"first": number + 1, "progress": meter.batch}
            if request.score:
                scores = generator.score(lines, given, source, request.target, **where)
                output.write(map(scored, scores))
            else:
                written = []
                texts_of_lines = generator.generate(lines, source, request.target, **where)
                pairs = zip(lines, texts_of_lines, strict=True)
                for i, (line, texts_of_line) in enumerate(pairs, number):
                    best_text = texts_of_line[0].text
                    if line and not best_text:
                        empty += 1
                    if request.references:
                        best.append(best_text)
                    written += shown(i, texts_of_line)
                output.write(written)
            number += len(lines)
            meter.lines(number)
        output.finish()
    summary = meter.summary(number)
    if empty:
        summary += f", {empty:,} of them empty"
    print(summary, file=sys.stderr)
    if request.references:
        print("\n".join(compared(best, request, source, path)), file=sys.stderr)


def opened(request: Request) -> tuple[Generator, str]:
    """The run's newest checkpoint, on all devices, and the language of the input."""
    record = read_run_record(request.run)
    languages = record["languages"]
    if not record["model"].get("decoder_layers"):
        raise UserError(
            f"{request.run}: a run of an encoder alone, which writes nothing; give the workdir of"
            " one with a decoder (DECODER_LAYERS above 0), trained to translate or to restore text"
        )
    others = [code for code in languages if code != request.target]
    if request.source is None and len(others) > 1 and request.target in languages:
        raise UserError(f"--from: which of {', '.join(others)} is the input in?")
    mesh = mesh_of_all()
    trained = open_run(request.run, mesh=mesh)
    generator = Generator(
        trained.model,
        trained.params,
        trained.vocabulary,
        trained.languages,
        request.decoding,
        mesh,
        request.tokens_per_batch,
        request.truncate,
        request.seed,
    )
    # Refuses a language that is not of the run.
    if request.source:
        generator.language(request.source)
    generator.language(request.target)
    source = request.source
    if not source:
        # The other one of two; of a run that restores text the target itself.
        source = next(iter(others), request.target)
    _note_untrained(request, source, record.get("stages", {}))
    return generator, source


def _note_untrained(request: Request, source: str, stages: Mapping[str, Any]) -> None:
    """Tells where a run that learnt to translate did not learn this direction."""
    # Back-translation learns all directions, whatever pairs there are.
    if source == request.target or "back_translation" in stages:
        return
    learnt = []
    for settings in stages.values():
        learnt += settings.get("directions") or ()
    direction = f"{source}-{request.target}"
    if learnt and direction not in learnt:
        print(f"note: {request.run} learnt {', '.join(learnt)}, not {direction}", file=sys.stderr)


def compared(best: list[str], request: Request, source: str, path: str) -> Iterator[str]:
    """A line for each metric against the references."""
    references = list(texts(request.references))
    value, signature = bleu(best, references, request.target)
    yield f"BLEU {value:.2f} ({signature})"
    value, signature = chrf(best, references)
    yield f"chrF {value:.2f} ({signature})"
    yield f"ROUGE-L {rouge_l(best, references, request.target):.2f}"
    by_language = {request.target: references}
    if source != request.target:
        by_language[source] = list(texts(path))
    try:
        yield f"wrong language {wrong_language_rate(best, request.target, by_language):.2%}"
    except UserError as error:
        yield f"wrong language unknown: {error}"
