# Every target first installs the packages that it needs and that are missing (Debian 12, root or sudo).
#   make demo     train a small model on made-up data and translate with it: minutes, no data needed
#   make build    build the program and the library: build/release/bin/tandem, build/release/lib/libtandem.so
#   make test     build and run every test that a CPU can run
#   make soak     run every test at its full count, and the tests under sanitizers: hours
#   make bench    measure matrix products, the training step (also against PyTorch) and preparation
#   make bundle   pack the binary and every library it needs into build/tandem.tar.gz; bundle-slim leaves out NVIDIA's
#   make release VERSION=x.y.z   the bundles, check sums and notes of a release, in build/tandem-x.y.z
#   make format   format the sources and run clang-tidy

SHELL := /bin/bash
BUILD := build/release
TANDEM := $(BUILD)/bin/tandem

.PHONY: build demo test soak sanitize bench bundle bundle-slim release format clean

build:
	@tools/install-packages build
	@cmake --preset release
	@cmake --build $(BUILD) --target tandem libtandem

demo: build
	@$(TANDEM) demo

test:
	@tools/install-packages test
	@tools/python-environment sacrebleu tensorboard safetensors
	@cmake --preset release -DTANDEM_TESTS=ON
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -LE soak -j2

soak: test sanitize
	@TANDEM_SOAK=1 ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j1 --timeout 7200

sanitize:
	@tools/install-packages test
	@cmake --preset sanitize
	@cmake --build build/sanitize
	@ctest --test-dir build/sanitize --output-on-failure --no-tests=error -LE soak -j2

bench:
	@tools/install-packages bench
	@tools/python-environment torch
	@cmake --preset release -DTANDEM_BENCH=ON
	@cmake --build $(BUILD)
	@bench/run $(BUILD)

bundle: build
	@tools/install-packages bundle
	@tools/bundle $(TANDEM) build/tandem.tar.gz

bundle-slim: build
	@tools/install-packages bundle
	@tools/bundle $(TANDEM) build/tandem-slim.tar.gz --slim

release:
	@tools/release "$(VERSION)"

format:
	@tools/install-packages format
	@git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format -i
	@cmake --preset release >/dev/null
	@git ls-files 'src/*.cc' 'apps/*.cc' | xargs -P2 -n4 clang-tidy -quiet -p $(BUILD)

clean:
	rm -rf build
