"""Pages and cards, from a run's folder alone."""
