"""The command line: it parses, calls one function of the library and prints what that gives back."""
