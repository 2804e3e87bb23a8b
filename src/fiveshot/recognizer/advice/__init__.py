"""What a model says about its own photos: reports, reviews and evaluations."""
