"""A recipe's programs compiled for machines that are not there: do they fit, what bounds them."""
