"""A model on a task, a benchmark's or a user's own: what it predicts for records, and the task's
metrics per language."""
