collect_ignore = ["pilot_worker.py"]  # it imports from a checkout of another program
