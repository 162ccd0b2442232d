"""Labelled examples: what a record is, the readers of their files, and what a task is."""
