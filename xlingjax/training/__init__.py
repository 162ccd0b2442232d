"""A run: its loop and step, what it trains on, its optimizer, checkpoints, where its weights come
from."""
