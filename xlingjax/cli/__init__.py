"""The command line: a file per family of verbs, its options beside what it does."""
