"""Records on disk to cards, index, queries, and differences between versions."""
