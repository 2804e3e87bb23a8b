"""The page: one self-contained HTML file about finished runs."""
