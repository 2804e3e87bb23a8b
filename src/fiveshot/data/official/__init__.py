"""Datasets in the layouts they are published in: a module each, named like it and found by its ``SPEC``."""
