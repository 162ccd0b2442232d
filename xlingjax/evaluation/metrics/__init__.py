"""The metrics of benchmarks, by name, on predictions and gold alone."""
