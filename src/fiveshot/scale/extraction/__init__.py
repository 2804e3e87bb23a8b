"""From shards of images to vectors on a cluster, kept in a folder of shards or in one feature file."""
