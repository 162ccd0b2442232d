"""Text to ids and back: SentencePiece, fastBPE, the tokenizers of Hugging Face; training a
vocabulary, changing one."""
