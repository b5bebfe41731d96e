# Two commands for a fresh clone: `make demo` and `make test`. Each does all its own set-up.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# What is installed, each archive checked against its sha256. Where an index has builds of its own:
# `make setup HASHES=`, with the same versions and without the check.
HASHES ?= constraints-hashed.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-network test-slow test-gpu setup lock lint bench docs clean

demo: $(READY)
	$(BIN)/muster advise heart
	$(BIN)/muster compare examples/demo.toml

# What pytest compiles is kept for the next run, also where Python is told not to.
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY)
	$(BIN)/python -m pytest -n logical --dist worksteal

# One federation of real processes, over TLS: about a minute.
test-network: $(READY)
	$(BIN)/python -m pytest -m slow tests/flower/local/test_loopback.py -k registered_keys

# Proofs that take minutes: the papers' claims on more seeds and larger problems.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# A GPU against the processor, on all engines and methods: a few minutes; skipped where there is none.
test-gpu: $(READY)
	$(BIN)/python -m pytest -m gpu -rs tests/engines/test_gpu.py

setup: $(READY)

# The hashes of what constraints.txt pins, after it has changed.
lock:
	$(PYTHON) .ci/lock.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# The docs as a static site, with a reference from the docstrings: site/index.html.
docs: $(READY)
	@$(BIN)/python -c 'import material, mkdocstrings' 2>/dev/null || \
	  $(PIP) -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: site/index.html"

$(READY): pyproject.toml constraints.txt constraints-hashed.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "muster needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "setting up .venv (once; a few minutes)"
	@$(PYTHON) -m venv .venv
ifeq ($(HASHES),)
	@$(PIP) -c constraints.txt -e '.[dev]'
else
	@# The file lists all there is. pip is not to solve what is solved: it would look at newer versions.
	@$(PIP) --no-deps --require-hashes -r $(HASHES) || \
	  { echo "an archive of another sum, or one that is not listed; without the check: make setup HASHES="; exit 1; }
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m pip check
endif
	@$(BIN)/python -m compileall -q src  # also where Python is told not to keep what it compiles
	@touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
