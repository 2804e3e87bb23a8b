"""The commands: each parses its options, calls one function of the library and prints what it gives back."""
