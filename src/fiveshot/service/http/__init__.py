"""The protocol: who may ask, how much is taken, how errors are answered, and the server itself."""
