"""The model that is measured: a file with a format, named inputs and outputs."""
