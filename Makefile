# `make test` and `make bench` set everything up on a fresh machine; nothing else needs to be installed by hand.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LIGHT  := $(VENV)/.light
READY  := $(VENV)/.ready

# An environment of its own with what `pip install .` brings, and pytest.
EVERYDAY := build/light

.PHONY: bench speed test test-light repeat docs release lint format clean browser broker exiftool

# The paper's CUB-200 big-start protocol with the paper's settings: its six methods and the default head, one draw, on
# embedded features of a real ViT, adapted on the base classes by the paper's recipe. The README's table has five draws:
# fiveshot bench cub200/big --seeds 5
bench: $(LIGHT)
	$(BIN)/fiveshot bench cub200/big

# Every ratio that must hold, measured: by hand on a quiet machine, never in CI. PUBLISHED is a clone of the published
# repository and DATA the folder of CUB-200's photographs; without them their parts are left out.
speed: $(READY)
	$(BIN)/python benchmarks/speed.py $(if $(PUBLISHED),--published "$(PUBLISHED)") $(if $(DATA),--data "$(DATA)")

# Hundreds of processes import the package: bytecode is kept, also where the environment says otherwise.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --dist worksteal

# Every change of a model waits for the disk. Where memory has room for them, the folders of tests lie there; those of
# tests that passed are removed at once.
MEMORY := $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
ifdef MEMORY
PYTEST := PYTEST_DEBUG_TEMPROOT=$(MEMORY) $(PYTEST) -o tmp_path_retention_policy=failed
endif

test: $(READY) browser broker exiftool
	$(PYTEST) -n 2 -m "not pages"

# The everyday tests where no extra is installed; it does not count if hardly any of them ran. Some embedded features
# are in a checkout only.
test-light: $(EVERYDAY)/.ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(EVERYDAY)/bin/python -m pytest -q --junit-xml=$(EVERYDAY)/report.xml \
	  tests/core tests/heads tests/metrics tests/storage tests/features tests/recognizer tests/plugins tests/cli \
	  --ignore=tests/features/test_embedded_features.py
	$(EVERYDAY)/bin/python tools/count_passed.py $(EVERYDAY)/report.xml --at-least 1500

$(EVERYDAY)/.ready: pyproject.toml $(shell find src -name '*.py')
	test -x $(EVERYDAY)/bin/python || $(PYTHON) -m venv $(EVERYDAY)
	$(EVERYDAY)/bin/python -m pip install --quiet . pytest
	touch $@

# The whole suite again and again, half of the runs beside busy loops: no test may change its mind. Takes hours.
repeat: $(READY)
	$(BIN)/python tools/repeat.py --runs 10 --busy 5

# The site in build/site, warnings as errors; the notebooks are run, and every page is followed command by command.
# Look at it: python -m http.server -d build/site
docs: $(READY) browser broker
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(PYTEST) -n 2 -m pages tests/docs

# What is committed as a release in dist/, checked as somebody will meet it; nothing is uploaded (docs/how-to/release.md).
release: $(READY)
	$(BIN)/python tools/release.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Only a complete installation is marked as ready, so that an interrupted one is repaired by the next call.
# `bench` needs what `pip install fiveshot` brings and no more; everything else needs all extras.
$(LIGHT): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(READY): $(LIGHT)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

BRIEFLY := -o Acquire::Retries=0 -o Acquire::http::Timeout=10

# Pages are looked at in a real browser; where it cannot be installed, those tests are skipped with a reason. Most of
# them are content with the one that has no windows, which takes a quarter of the time; that there is none is no error.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq $(BRIEFLY) && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	echo "chromium is not installed and cannot be installed here: browser tests will be skipped"
	@command -v chromium-headless-shell >/dev/null || ! command -v chromium >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(BRIEFLY) chromium-headless-shell >/dev/null 2>&1; } || true

# What is watched is told to a real MQTT broker; the same goes for it.
broker:
	@{ command -v mosquitto || test -x /usr/sbin/mosquitto; } >/dev/null && command -v mosquitto_sub >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq $(BRIEFLY) && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mosquitto mosquitto-clients >/dev/null; } || \
	echo "mosquitto is not installed and cannot be installed here: tests of MQTT will be skipped"

# Sidecars are read back by another program; the same goes for it.
exiftool:
	@command -v exiftool >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq $(BRIEFLY) && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libimage-exiftool-perl >/dev/null; } || \
	echo "exiftool is not installed and cannot be installed here: its tests will be skipped"

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
