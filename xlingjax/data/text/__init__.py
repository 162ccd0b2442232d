"""Text as people have it on disk: which files a pattern means, their languages and formats, and
their lines."""
