"""Models and tokenizers of other programs, a file per family: their names for parameters, their
files."""
