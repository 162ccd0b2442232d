"""Text to ids and back: SentencePiece, fastBPE, the tokenizers of Hugging Face; training a
vocabulary, changing one."""

from typing import Any

from xlingjax.runtime import moved


def __getattr__(name: str) -> Any:
    return moved.attribute(__name__, name)
