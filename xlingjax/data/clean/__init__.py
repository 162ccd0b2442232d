"""Raw files into text to pretrain on: extraction, normalisation, filters and deduplication."""
