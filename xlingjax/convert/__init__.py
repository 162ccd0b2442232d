"""Models of other programs, in and out: a file per family, with a table of names and two
functions."""
