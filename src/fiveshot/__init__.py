"""Teach an image classifier new classes from five photos each, without forgetting and without retraining."""

__version__ = "0.1.0"
