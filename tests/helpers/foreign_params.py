"""A foreign model without its tokenizer."""

from xlingjax.convert.formats.family import converted
from xlingjax.convert.formats.hugging_face import family_of
from xlingjax.convert.formats.tensors import open_tensors


def params_of(folder):
    """The model and its parameters alone, whatever its tokenizer."""
    family, fields = family_of(folder)
    config = family.config_of(fields, folder.resolve().name)
    return converted(family, config, open_tensors(folder))
