"""The runs behind tables of the papers."""
