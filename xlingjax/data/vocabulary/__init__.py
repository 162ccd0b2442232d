"""Text to ids and back: SentencePiece, fastBPE, Hugging Face; vocabularies trained and changed."""
