"""What is measured of a model, one file each; and predictions of a benchmark's tasks."""
