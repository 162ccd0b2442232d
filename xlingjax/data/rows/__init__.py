"""Rows: which tokens stand in which row of an objective, and what is drawn for them."""
