"""What `translate` and `generate` are asked for."""

import dataclasses

from xlingjax.model.decoding import Decoding
from xlingjax.runtime.files import require_apart


@dataclasses.dataclass(frozen=True)
class Request:
    """source: language of the input; None: the other one of a run of two. input, output: None is a
    pipe. score: a file of texts to score instead of writing some; references: one to compare with
    what is written."""

    run: str
    source: str | None
    target: str
    decoding: Decoding
    input: str | None = None
    output: str | None = None
    score: str | None = None
    references: str | None = None
    tokens_per_batch: int = 4096
    truncate: bool = False
    seed: int = 0


def apart(request: Request) -> None:
    """Raises UserError where the output would be written over what is read."""
    if request.output:
        read = {
            "--input": request.input,
            "--score": request.score,
            "--references": request.references,
        }
        require_apart(request.output, read)
