"""What a model answers: one state ready to recognize, and when a photo is called unknown."""
