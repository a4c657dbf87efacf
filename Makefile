# Two commands do all the set-up: `make demo` and `make test`. Both are repeatable.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/demo
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint bench clean

# torch first, on its own: nothing that follows replaces it
$(VENV)/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt -e '.[report]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.run
	$(BIN)/datamix demo --out $(OUT)

test: $(VENV)/.dev lint
	$(BIN)/pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	for script in $(sort $(filter-out %_passes.py,$(wildcard benchmarks/*.py))); do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) runs
