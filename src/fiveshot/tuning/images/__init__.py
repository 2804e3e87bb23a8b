"""The base images of a tuning: decoded once, random views to train on, fixed ones to measure with."""
