# The commands of this repository. `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help up test check sim soak crash fuzz s3tests bench fmt clean

SEEDS ?= 1000
MINUTES ?= 10
SECONDS ?= 60
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

help: ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /  make \1\t/' | expand -t 18

up: ## install what the host lacks, build, and start a whole cloud on this machine
	@exec scripts/up.sh

test: ## install what the tests need, then run every check and every test
	@exec scripts/test.sh

check: ## the quick part of test: formatting, clippy, tidy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo xtask tidy

sim: ## the simulated cloud under seeded faults; SEEDS=1000 of them
	cargo run --release --package sim -- --seeds $(SEEDS)

soak: ## a real cloud on hosts of its own under random faults, for MINUTES=10; SEED=s for the same again
	@exec scripts/soak.sh $(MINUTES) $(SEED)

crash: ## kill root and its object store under load, again and again, for MINUTES=10; SEED=s for the same again
	CRASH_MINUTES=$(MINUTES) CRASH_SEED=$(SEED) cargo test --package banyan --test crash -- --ignored --nocapture

fuzz: ## spoiled requests and documents against the object store, for SECONDS=60; SEED=s for the same again
	FUZZ_SECONDS=$(SECONDS) FUZZ_SEED=$(SEED) cargo test --package object --test fuzz -- --ignored --nocapture

s3tests: ## the public conformance suite of S3, from a clone of it: S3TESTS_DIR=~/s3-tests
	@exec scripts/s3tests.sh

bench: ## measure, beside the floor and the competition, and print tables
	@exec scripts/bench.sh

fmt: ## format all code
	cargo fmt --all

clean: ## remove what was built
	cargo clean
