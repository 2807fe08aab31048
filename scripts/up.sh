#!/usr/bin/env bash
# The whole of `make up`: host packages, build, start. Options for `banyan up`
# may follow, as in: scripts/up.sh --data DIR
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/host-packages.sh up
need_cargo
need_root "banyan up starts containers, bridges and address translation, which only root may." "make up"

step "building (the first time takes some minutes)"
cargo build --release --package banyan
exec target/release/banyan up "$@"
