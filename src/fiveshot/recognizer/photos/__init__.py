"""Photos as people give them: files, folders, archives and bytes, and the features a backbone makes of them."""
