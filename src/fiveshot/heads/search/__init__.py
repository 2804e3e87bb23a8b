"""Parameters chosen by few-shot episodes inside the base classes, and a head that chooses its own."""
