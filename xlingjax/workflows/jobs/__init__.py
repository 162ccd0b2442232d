"""How many runs are done: jobs, and the engine that runs them in order."""
