"""Models and tokenizers of other programs, a file per family: names of parameters, files."""
