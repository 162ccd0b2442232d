"""`xlingjax adapt`, and trainings that last so many hours (`pretrain --hours`)."""
