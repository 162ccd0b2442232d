"""Inputs that are wrong, files that are damaged or hostile, disks that are full: what each gets."""
