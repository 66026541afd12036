"""Which op or subgraph is wrong, and the smallest file that shows it."""
