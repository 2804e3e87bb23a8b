"""Photos as they arrive, in a folder or at an address: recognized, voted on, and told to programs and homes."""
