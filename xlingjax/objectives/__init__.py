"""What loss is paid, a file per paper."""
