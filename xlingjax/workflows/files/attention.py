"""Whom each piece of a pair attends to in a trained model, in pictures."""

from collections.abc import Sequence
from pathlib import Path

from xlingjax.data.held_out_pairs import Pairs
from xlingjax.errors import UserError
from xlingjax.evaluation.attention_maps import maps_of
from xlingjax.evaluation.perplexity import pair_rows
from xlingjax.inference.encode import language_index
from xlingjax.inference.run import open_run
from xlingjax.report import html
from xlingjax.report.inspector import write_page
from xlingjax.training.run_record import read_run_record
from xlingjax.workflows.files.encode import language_of


def attention_of_pair(
    run: str,
    pair: Sequence[str],
    languages: Sequence[str],
    *,
    layer: int | None = None,
    head: int | None = None,
    reset_positions: bool | None = None,
    output: str,
) -> list[dict]:
    """Writes the page of the maps of a pair (see `maps_of`) to folder `output`, and returns them.
    reset_positions: None, as the run was trained. Raises UserError for a text of no piece, and one
    too long for the model."""
    texts = [" ".join(text.split()) for text in pair]
    trained = open_run(run)
    model, vocabulary = trained.model, trained.vocabulary
    # Marks of no width alone are no piece either.
    if not all(len(vocabulary.encode(text)) for text in texts):
        raise UserError('--pair: a text is empty; give two, --pair "TEXT" "TEXT"')
    known = [language_of(trained, language) for language in languages]
    codes, notes = zip(*known, strict=True)
    ids = [language_index(code, trained) for code in codes]
    # Four tokens open and close the texts.
    tokens = 4 + sum(len(vocabulary.encode(text)) for text in texts)
    most = model.config.max_positions - model.config.position_offset
    if tokens > most:
        raise UserError(
            f"--pair: its texts have {tokens} tokens together, and the model has room for {most};"
            " give shorter ones"
        )
    if reset_positions is None:
        stages = read_run_record(run).get("stages", {}).values()
        reset_positions = any(stage.get("reset_positions") for stage in stages)
    first, second = texts
    rows = pair_rows(Pairs(codes[0], (first,), (second,)), vocabulary, tokens, ids)
    maps = maps_of(
        model,
        trained.params,
        vocabulary,
        rows,
        [codes],
        layer=layer,
        head=head,
        reset_positions=reset_positions,
    )
    for note in {*filter(None, notes)}:
        print(note.removeprefix("; "))
    body = html.part("sections", "attention", maps)
    write_page(Path(output), "Attention of a pair", [("attention", run, body)])
    print(f"wrote {Path(output) / 'inspect.html'}")
    return maps
