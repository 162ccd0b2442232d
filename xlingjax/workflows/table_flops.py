"""Temporary."""

ASSUMED = "x"


def gpu_hours(f):
    return f / 3.6e3 / 757e12 / 0.25


def recipe_flops(recipe):
    return 1.0
