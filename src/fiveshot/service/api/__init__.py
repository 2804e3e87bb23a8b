"""The addresses of the service: what a request brings, and what it is answered with."""
