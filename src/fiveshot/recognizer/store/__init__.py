"""A model on the disk: the database, the files next to it, and their contents in one state."""
