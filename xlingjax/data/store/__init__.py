"""What is made of text once and kept: tokens, their blocks, plans of rows."""
