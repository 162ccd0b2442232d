"""Text on disk: which files a pattern means, their languages, formats and lines."""
