"""Which op or subgraph a lane gets wrong, and the smallest file that shows it.

`assay.diagnosis.engine.diagnose(path, lane, settings)` is what `assay diagnose` calls.
"""
