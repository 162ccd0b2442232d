"""Text, from files to batches."""
