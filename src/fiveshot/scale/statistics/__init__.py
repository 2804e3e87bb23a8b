"""From vectors to class statistics on a cluster, and from these to a model."""
