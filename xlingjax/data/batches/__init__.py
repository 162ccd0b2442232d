"""Batches: which rows stand in which, and what is made of them, by Grain."""
