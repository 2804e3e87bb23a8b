"""The command line: each command parses options, calls one function of the library, and prints the result."""
