"""Windows: tokens cut at a stride, from documents to shuffled shards, as a Beam graph."""
