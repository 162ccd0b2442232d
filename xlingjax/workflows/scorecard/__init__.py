"""The score card of many runs: tables by task, strategy and language."""
