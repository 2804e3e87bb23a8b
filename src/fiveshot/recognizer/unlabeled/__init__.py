"""Photos without labels: groups of similar ones, folders, and what a watch has kept."""
