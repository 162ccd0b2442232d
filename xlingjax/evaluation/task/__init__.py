"""A model on a task, a benchmark's or a user's own: predictions, and metrics per language."""
