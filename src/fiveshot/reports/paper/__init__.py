"""The paper's tables and figures, made again from whatever features are there."""
