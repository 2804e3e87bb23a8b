"""From images to a feature file: streaming, cached, and continued where it was stopped."""
