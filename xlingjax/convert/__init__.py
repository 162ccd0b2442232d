"""Models of other programs, in and out: per family a file, a table of names and two functions."""
