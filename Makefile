# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint benchmark clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/dasp reproduce

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  # two processes with a thread each: two with two threads each are many times slower on two cores
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2

benchmark: install
	$(BIN)/python benchmarks/propagation.py
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/bayesian.py
	$(BIN)/python benchmarks/background.py
	$(BIN)/python benchmarks/selection.py
	$(BIN)/dasp benchmark

clean:
	rm -rf $(VENV) results
