"""All tokens of a text in memory, as tests look at them."""

import numpy as np

from xlingjax.data.store.tokenise import Records, Tokens, text_blocks


def whole(text):
    """All of a text of blocks as one `Records`."""
    sides = []
    for tokens in zip(*(block.sides for block in text.each()), strict=True):
        parts = [
            np.concatenate([getattr(one, name) for one in tokens]) for name in ("ids", "lengths")
        ]
        sides.append(Tokens(*parts))
    return Records(text.languages, tuple(sides))


def text_records(*args, **options):
    return whole(text_blocks(*args, **options))


def pair_records(*args, **options):
    return whole(text_blocks(*args, **options))


def task_records(*args, **options):
    from xlingjax.data.seqio.task_text import task_text

    return whole(task_text(*args, **options))
