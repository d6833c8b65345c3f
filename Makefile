# Everything a fresh machine needs: Python >= 3.11, make, and a package registry.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo install test test-federation test-thorough scorecard lint check format docs planted bench bench-scale clean

demo: .venv/core  ## create the environment and see a federation train
	$(BIN)/coterie demo

install: .venv/dev  ## the development environment

test: install  ## every test
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 12 --durations-min 5
	$(BIN)/python -m tests.golden

# Three at once on two cores: for some of the time they wait for processes to start or to be missed.
test-federation: install  ## real servers and clients on this machine (about 8 minutes)
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "federation and not thorough" tests/engines/flower

test-thorough: install  ## what follows from other tests, tried all the same (about 15 minutes)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m thorough

scorecard: install  ## the 36 rows of docs/scorecard.md, and that page (about 15 minutes)
	$(BIN)/python -m tests.scorecard

lint: install  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint  ## what lint looks at, and the fast tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not thorough"

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: install  ## the site in build/docs
	$(BIN)/python docs/make.py --check
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

planted: install  ## who finds the planted groups: rewrites docs/planted.md (about 15 minutes)
	$(BIN)/python docs/planted.py

bench: install  ## speed beside a plain loop and other libraries (about 15 minutes)
	$(BIN)/python -m bench $(BENCH)

bench-scale: install  ## time and memory of 100, 1,000 and 10,000 clients (about 5 minutes)
	$(BIN)/python -m bench.scale $(BENCH)

clean:
	rm -rf .venv runs dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable ".[fast]"
	touch $@

.venv/dev: .venv/core
	$(PIP) --editable ".[dev]"
	touch $@
