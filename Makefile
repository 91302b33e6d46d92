# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

unexport PYTHONDONTWRITEBYTECODE  # commands that are tested would compile the package each time anew

.PHONY: install demo test quick browser lint docs fuzz benchmark conformance notebooks clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install  # a network explained, with its report, and then the paper's experiments: open results/index.html
	$(BIN)/python -m reproduction demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two processes with a thread each: two with two threads each are many times slower on two cores. tests/scheduling.py
# says which tests stay together. Types are checked meanwhile, and what is wrong with them is said at the end.
test: install browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > $(VENV)/mypy.txt 2>&1 & types=$$!; \
	echo 'OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2    (and mypy beside it)'; \
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2; tests=$$?; \
	wait $$types; types=$$?; \
	echo "mypy: $$(cat $(VENV)/mypy.txt)"; \
	if [ $$tests -ne 0 ]; then echo 'make test: pytest failed, see above' >&2; fi; \
	if [ $$types -ne 0 ]; then echo 'make test: mypy failed, see above' >&2; fi; \
	[ $$tests -eq 0 ] && [ $$types -eq 0 ]

# While one works on the mathematics: without jobs, pages, figures, Ray, notebooks and the reproduction of the paper, in
# less than a minute on two idle cores. tests/scheduling.py says what is left out.
quick: install
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 -m 'not slow'

# Pages are tested in Chromium; where there is none and Debian's cannot be installed, those tests are skipped.
browser: install
	@{ for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name && exit; done; \
	[ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install --yes chromium; } > $(VENV)/browser.txt 2>&1 || \
	echo 'make test: there is no Chromium, so tests of pages in a browser are skipped'

docs: install  # the site: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

SECONDS := 3600

fuzz: install  # changed files, outputs and arguments for an hour, or as `make fuzz SECONDS=60`; what hurts is in fuzz-findings/
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hostile --seconds $(SECONDS)

benchmark: install
	$(BIN)/python benchmarks/propagation.py
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/bayesian.py
	$(BIN)/python benchmarks/background.py
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python -m reproduction benchmark

# Other libraries' own tests on our classes: make conformance CAPTUM=../captum SHAP=../shap SHAPIQ=../shapiq [SAVE=1]
conformance: install
	$(BIN)/pip install --quiet --disable-pip-version-check parameterized
	OMP_NUM_THREADS=1 $(BIN)/python -m conformance $(if $(CAPTUM),--captum $(CAPTUM)) $(if $(SHAP),--shap $(SHAP)) \
		$(if $(SHAPIQ),--shapiq $(SHAPIQ)) $(if $(SAVE),--save)

notebooks: install  # run them at their full size and save what they print and draw, in about four minutes
	$(BIN)/python docs/run_notebooks.py

clean:
	rm -rf $(VENV) results site
