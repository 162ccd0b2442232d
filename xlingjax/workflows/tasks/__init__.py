"""Tasks of benchmarks: sweeps of fine-tunings, and runs measured as they are."""
