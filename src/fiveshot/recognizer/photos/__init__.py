"""Photos that users give (files, folders, archives, bytes), and the features that a backbone makes of them."""
