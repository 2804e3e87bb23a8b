"""How a model lies on the disk: the database, the files beside it, and what they hold in one state."""
