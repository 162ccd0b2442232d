"""All tokens of a text in memory, as tests look at them."""

from xlingjax.data.store.blocks import pair_blocks, text_blocks


def text_records(*args, **options):
    return text_blocks(*args, **options).records()


def pair_records(*args, **options):
    return pair_blocks(*args, **options).records()


def task_records(*args, **options):
    from xlingjax.data.seqio.task_text import task_text

    return task_text(*args, **options).records()
