.PHONY: help
help:
	@echo "make run, make test"
