# Everything by two commands: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.set-up

.PHONY: demo test lint dev setup clean

# Brew a model from the embedded sample: offline, minutes on two CPU cores. A second call finds
# nothing stale.
demo: setup
	$(BIN)/samovar materialize --stale --profile sample
	$(BIN)/samovar summary --profile sample

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# The Dagster UI of the demo, on http://127.0.0.1:3000
dev: setup
	$(BIN)/samovar dev --profile sample

# Also tells a bare `dagster dev` where its home is (.env, see `samovar setup`).
setup: $(SETUP)

$(SETUP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Samovar needs Python 3.11 or newer; set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	$(BIN)/samovar setup
	touch $(SETUP)

lint: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) data
