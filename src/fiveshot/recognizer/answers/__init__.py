"""Answers where people need them: tables, class folders, keywords beside photos, annotated pictures."""
