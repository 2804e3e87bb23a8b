"""The command line: each module of commands parses, calls one function of the library and prints what it gives."""
