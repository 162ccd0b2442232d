"""Files in, files out: what a trained run does with them, and raw text cleaned."""
