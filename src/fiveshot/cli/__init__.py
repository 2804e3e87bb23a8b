"""The command line: it parses, calls one function of the library and prints what that gives back."""

import gc

# Importing makes many objects and no garbage: looking for some every 700 objects is a tenth of a cold start.
gc.set_threshold(50_000, 20, 20)
