"""The machine: platform and processes, signals, what libraries print, files."""
