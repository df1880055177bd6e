# Targets set up .venv when needed. Requires only Python >= 3.10, cargo and a C linker.
PYTHON ?= python3
BIN := .venv/bin
RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

.PHONY: demo test lint bench bench-python bench-rules clean

demo: .venv/built
	$(BIN)/manylabel demo

test: .venv/built
	cargo test --workspace --quiet
	$(BIN)/pytest -q

lint: .venv/built
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest manylabel._core

bench:
	cargo bench

# Whole fits and predictions beside other libraries, installed in .venv-peers; needs MANYLABEL_DATA.
bench-python: .venv/built .venv-peers/installed
	$(BIN)/python benches/python/compare.py

# The same for boosted rules beside BOOMER, installed in .venv-boomer; needs Python 3.11.
bench-rules: .venv/built .venv-boomer/installed
	$(BIN)/python benches/python/rules.py --results target/rules.jsonl

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --group dev
	touch $@

.venv/built: .venv/installed $(RUST_SOURCES)
	PIP_QUIET=1 $(BIN)/maturin develop --release --quiet --extras plot
	touch $@

.venv-peers/installed: benches/python/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --requirement benches/python/peers.txt
	touch $@

.venv-boomer/installed: benches/python/rules_peers.txt
	$(PYTHON) -m venv .venv-boomer
	.venv-boomer/bin/pip install --quiet --requirement benches/python/rules_peers.txt
	touch $@

clean:
	cargo clean
	rm -rf .venv .venv-peers .venv-boomer demo
