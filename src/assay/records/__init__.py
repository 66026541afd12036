"""Every JSON document as a model: read, checked, and written in one canonical form."""
