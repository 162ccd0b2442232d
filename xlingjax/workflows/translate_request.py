"""What `translate` and `generate` are asked for."""

import dataclasses
import os

from xlingjax.errors import UserError
from xlingjax.model.decoding import Decoding
from xlingjax.runtime.files import require_file


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
    if not request.output:
        return
    require_file(request.output)
    output = os.path.realpath(request.output)
    read = {
        "--input": request.input,
        "--score": request.score,
        "--references": request.references,
    }
    for option, path in read.items():
        if path and os.path.realpath(path) == output:
            raise UserError(
                f"--output {request.output} is the file of {option}: name another one",
            )
