"""Stores: the folders of Parquet shards that stages hand to each other, their manifest, reader and one writer."""
