"""Which reader opens what: a folder of transformers, or a file of another program with its own
files beside it."""

from pathlib import Path
from types import ModuleType

from xlingjax.convert.formats import fairseq, hugging_face, paddle, xlm_checkpoint
from xlingjax.errors import UserError

# By ending, since all three are pickles, which are not opened to be looked at.
READERS: dict[str, ModuleType] = {".pt": fairseq, ".pth": xlm_checkpoint, ".pdparams": paddle}


def reader_of(source: Path) -> tuple[ModuleType, Path]:
    """(the module, what its `read` and `params_of` take). source: a folder, or the file of the
    weights. Raises UserError for a file of another kind, and for a folder with several."""
    if source.is_file():
        if source.suffix not in READERS:
            raise UserError(
                f"{source} is none of {', '.join(READERS)}; give the folder of a Hugging Face model"
            )
        return READERS[source.suffix], source
    paths = sorted(source.iterdir())
    files = [path for path in paths if path.suffix in READERS]
    suffixes = {path.suffix for path in paths}
    of_transformers = ".safetensors" in suffixes or ".bin" in suffixes
    # A folder of the hub may hold its model for another program, too.
    if not files or (of_transformers and (source / "config.json").is_file()):
        return hugging_face, source
    if len(files) > 1:
        raise UserError(
            f"{source} holds {', '.join(path.name for path in files)}; give one of them"
        )
    return READERS[files[0].suffix], files[0]
