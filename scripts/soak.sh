#!/usr/bin/env bash
# The whole of `make soak`: random faults and random actions of users on a real
# cloud of eight hosts, then a check that every promise was kept.
#
#   scripts/soak.sh MINUTES [SEED]
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/host-packages.sh test
need_cargo
need_root "The soak runs hosts as namespaces with real containers, which only root may." "make soak"

minutes=${1:-10}
seed=${2:-}
step "building"
# In one go: apart, the packages would ask for other features of what they share, and build it again.
cargo build --workspace --bins
exec target/debug/banyan-bed soak --minutes "$minutes" ${seed:+--seed "$seed"}
