"""What all parts of a run share: its text, its vocabulary, and what an earlier run says of itself."""

import dataclasses
import functools
from pathlib import Path

from xlingjax.data.frozen import read_header
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError
from xlingjax.identity import read_run_record, run_and_checkpoint
from xlingjax.probes import Files, words


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What all parts of a run share: text, or files of frozen batches, and the vocabulary."""

    mono: tuple[str, ...]
    parallel: tuple[str, ...]
    vocabulary_path: str
    asked: tuple[str, ...]
    frozen: str | None = None
    negatives: tuple[str, ...] = ()

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.vocabulary_path)

    @functools.cached_property
    def languages(self) -> tuple[str, ...]:
        """Sorted, the index is the language id: those asked for, else those of the files."""
        if self.asked:
            return tuple(sorted(self.asked))
        if self.frozen:
            return tuple(read_header(next(iter(sorted(Path(self.frozen).glob("*.frozen"))), ""))["languages"])
        from xlingjax.data.vocabulary_training import texts_by_language

        return tuple(texts_by_language(self.mono, self.parallel))


def corpus(
    mono: Files = None,
    parallel: Files = None,
    vocabulary: str | None = None,
    languages: Files = None,
    run: str | None = None,
    frozen: str | None = None,
    negatives: Files = None,
) -> Corpus:
    """The text and the vocabulary of a run.

    mono, parallel: patterns, in one string with spaces between them or in a list. languages: codes, "en,de" or a list;
    default: those of the files. run: a workdir whose vocabulary and languages are taken over, since fine-tuning must
    number languages as pretraining did. negatives: tables of `xlingjax mine --negatives`. frozen: a folder that
    `xlingjax freeze` wrote, instead of text.
    """
    if run:
        vocabulary = vocabulary or str(run_and_checkpoint(run)[0])
        languages = languages or read_run_record(run)["languages"]
    vocabulary = vocabulary or frozen
    if not vocabulary:
        raise UserError(
            "no vocabulary: set VOCABULARY to the folder that `xlingjax vocab` wrote, or to a SentencePiece .model file"
        )
    return Corpus(words(mono), words(parallel), str(vocabulary), words(languages), frozen, words(negatives))


BINDABLE = {"corpus": corpus}
