# Targets create .venv if it does not exist. They require only Python >= 3.10, cargo and a C linker.
PYTHON ?= python3
BIN := .venv/bin
# pip does not compile the modules that it installs, because this takes longer than the rest of the installation. Python
# compiles a module when it is first imported. Without `unexport`, each process of the tests would compile all imported
# modules again, which takes seconds.
export PIP_COMPILE := 0
unexport PYTHONDONTWRITEBYTECODE
RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

TARGET := $(or $(CARGO_TARGET_DIR),target)
# The program that runs the benches under valgrind. It must have the same version as the crate gungraun.
GUNGRAUN_VERSION := $(shell sed -n 's/^gungraun = "=\(.*\)"/\1/p' Cargo.toml)
GUNGRAUN := $(TARGET)/tools/gungraun-runner-$(GUNGRAUN_VERSION)

.PHONY: demo test lint docs bench bench-check bench-record bench-python bench-rules papers clean

demo: .venv/built
	$(BIN)/manylabel demo

# The Rust tests use the profile of the extension, so that they share its compiled dependencies. The benches
# are excluded, because their dependencies change the features of other crates. There is one worker more than
# cores, because some tests wait for other processes.
test: .venv/built .venv/tools
	cargo test --release --workspace --exclude manylabel-benches --quiet
	$(BIN)/pytest -q --numprocesses $$($(PYTHON) -c 'import os; print(os.cpu_count() + 1)') --dist worksteal

lint: .venv/built .venv/tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --package manylabel-benches --bench instructions --quiet -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest manylabel._core
	$(BIN)/python benches/python/tables.py --check

PROSE := README.md .github/CONTRIBUTING.md docs/*.md rust/README.md benches/README.md benches/papers.md
PROSE += $(shell find python/docs -name '*.md' -not -path '*/generated/*')

# Builds the documentation in target/docs. With MANYLABEL_DATA=<folder>, tutorials on real data run, and their output
# is recorded; without it, their pages show the recorded output. harper checks the grammar, and finds sentences of more
# than 40 words.
docs: .venv/built .venv/docs
	$(BIN)/codespell README.md docs .github/CONTRIBUTING.md rust/README.md benches/README.md benches/papers.md python
	$(BIN)/harper lint --quiet --format compact --no-color \
	  --ignore $$(sed '/^#/d; s/ *#.*//' python/docs/harper_ignore.txt | paste -sd, -) $(PROSE)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -D nb_execution_mode=force python/docs $(TARGET)/docs

# Measures the times of the kernels, appends them to benches/results/kernels.jsonl, and compares them with the
# previous run on this machine.
bench:
	@mkdir -p $(TARGET) && touch $(TARGET)/bench-begun
	cargo bench
	$(PYTHON) benches/python/kernels.py --since $(TARGET)/bench-begun

# Counts the instructions of the kernels under valgrind, and compares them with the newest line of
# benches/results/instructions.jsonl. Works on Linux only.
bench-check: $(GUNGRAUN)
	$(PYTHON) benches/python/instructions.py

bench-record: $(GUNGRAUN)
	$(PYTHON) benches/python/instructions.py --record

$(GUNGRAUN):
	@command -v valgrind >/dev/null || $(PYTHON) benches/python/instructions.py
	cargo install --locked --quiet --root $(TARGET)/tools gungraun-runner --version $(GUNGRAUN_VERSION)
	touch $@

# Compares whole fits and predictions with other libraries, which are installed in .venv-peers. Needs the
# folder MANYLABEL_DATA.
bench-python: .venv/built .venv-peers/installed
	$(BIN)/python benches/python/compare.py

# Compares boosted rules with BOOMER, which is installed in .venv-boomer. Needs the folder MANYLABEL_DATA and
# Python 3.11.
bench-rules: .venv/built .venv-boomer/installed
	$(BIN)/python benches/python/rules.py --results target/rules.jsonl

# Repeats the experiments of the papers. Needs the folder MANYLABEL_DATA. OPTIONS="--only rules --sets medical" measures
# a part, and OPTIONS=--list lists the parts.
papers: .venv/built
	$(BIN)/python benches/python/papers.py $(OPTIONS)
	$(BIN)/python benches/python/tables.py

.venv/made: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --group build
	touch $@

# Installs the packages that tests and linters need in addition to the library.
.venv/tools: .venv/made
	$(BIN)/pip install --quiet --group dev --group clients
	touch $@

.venv/docs: .venv/made
	$(BIN)/pip install --quiet --group docs
	touch $@

# Without `--group`, maturin would also install the packages of tests.
.venv/built: .venv/made $(RUST_SOURCES)
	PIP_QUIET=1 $(BIN)/maturin develop --release --quiet --extras plot --group build
	touch $@

.venv-peers/installed: benches/python/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --requirement benches/python/peers.txt
	touch $@

# Annif, for `.venv-annif/bin/pytest tests/compat` and benches/python/annif_project.py.
.venv-annif/installed: .venv/built
	$(PYTHON) -m venv .venv-annif
	.venv-annif/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-annif/bin/pip install --quiet 'annif[omikuji]>=1.4' pytest pytest-timeout hypothesis
	VIRTUAL_ENV=$(CURDIR)/.venv-annif PIP_QUIET=1 $(BIN)/maturin develop --release --quiet --group build
	touch $@

.venv-boomer/installed: benches/python/rules_peers.txt
	$(PYTHON) -m venv .venv-boomer
	.venv-boomer/bin/pip install --quiet --requirement benches/python/rules_peers.txt
	touch $@

clean:
	cargo clean
	rm -rf .venv .venv-annif .venv-peers .venv-boomer demo python/docs/generated
