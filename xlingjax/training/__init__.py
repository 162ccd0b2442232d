"""A run: its loop and step, data, optimizer, checkpoints, and where its weights come from."""
