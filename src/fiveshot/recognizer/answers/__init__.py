"""Outputs of predictions: tables, class folders, keywords next to photos, annotated pictures."""
