"""The training itself: the network, its steps and epochs, one run with its checkpoints, and how it is computed."""
