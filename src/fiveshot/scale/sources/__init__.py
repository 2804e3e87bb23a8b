"""Where images come from: folders, parquet files and tars, on a disk or behind a URL, cut into shards."""
