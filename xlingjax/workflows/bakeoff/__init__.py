"""Mixes of objectives beside each other: their runs, their page."""
