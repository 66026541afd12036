# make run: set up and assay 14 real models. make test: set up and pass all tests.
.PHONY: help run test test-long lint lock clean

PYTHON := .venv/bin/python
RUN_EXTRAS := browser,catalog
DEV_EXTRAS := all,dev
OUT ?= assay-out
# Within five minutes on two cores and a GPU in software: short timing, and two of the six kinds of inputs.
RUN_FLAGS ?= --threads 2 --runs 20 --warmup 0 --budget 0.3 --input-kind uniform --input-kind large

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

run: ## Set up, fetch 14 real models, measure them on every lane here; records and cards in OUT
	@scripts/setup.sh $(RUN_EXTRAS)
	@.venv/bin/assay browser install >/dev/null || echo "make run: without the browser lanes" >&2
	@models=$$($(PYTHON) scripts/fetch_models.py) && \
	.venv/bin/assay run $$models/*.tflite --out $(OUT) $(RUN_FLAGS); \
	status=$$?; [ $$status -le 1 ]

test: ## Set up and pass all tests
	@scripts/setup.sh $(DEV_EXTRAS)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright
	$(PYTHON) -m pytest -n 2 --dist loadgroup

test-long: ## The long checks: fuzzing, full-size models
	@scripts/setup.sh $(DEV_EXTRAS)
	$(PYTHON) -m pytest -m slow

lint: ## Format, lint and type-check
	@scripts/setup.sh $(DEV_EXTRAS)
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m pyright

lock: ## Write constraints.txt from what is installed in .venv
	@{ echo "# Every version that the set-up installs, resolved together. Made by: make lock"; \
	$(PYTHON) -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > constraints.txt

clean: ## Remove what was set up and fetched
	rm -rf .venv .cache
