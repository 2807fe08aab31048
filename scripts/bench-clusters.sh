#!/usr/bin/env bash
# The part of `make bench` about clusters from templates; it runs alone too. Nothing is left behind.
#
#   CASES="1x50 100x500 5000x2000 10000x10000@1500" HOSTS="100 500" ROUNDS=3 PARTS="tasks ssh clusters solver" scripts/bench-clusters.sh
#
# A case is WORKERSxMACHINES of twelve tasks each, @MS where every task takes so many milliseconds. Ansible and pyinfra
# come from PyPI into a folder of their own. BANYAN_COOPR_DEFINITIONS may name the folder of Coopr's definitions.
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/bench-shared.sh
source scripts/bench-shared.sh

need_cargo
need_root "The measurements run real hosts and containers, which only root may." "scripts/bench-clusters.sh"

read -ra cases <<<"${CASES:-1x50 100x500 5000x2000 10000x10000@1500}"
read -ra hosts <<<"${HOSTS:-100 500}"
parts=${PARTS:-tasks ssh clusters solver}
folder=$(mktemp -d)
bridge="bnc$((RANDOM % 10000))"
cgroup="banyan-bench-clusters-$$"
pid=""

finish() {
    stop
    networks_remove
    stop_database
    rm -rf "$folder"
}
trap finish EXIT

stop() {
    [ -z "$pid" ] && return
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    pid=""
}

# started NAME: waits until the process answers, and sets BANYAN_ENDPOINT and BANYAN_TOKEN.
started() {
    export BANYAN_ENDPOINT="http://127.0.0.1:$port"
    for _ in $(seq 300); do
        if curl -fs "$BANYAN_ENDPOINT/v1/health" >/dev/null && [ -s "$folder/$1/admin.json" ]; then
            BANYAN_TOKEN=$(jq -r .token "$folder/$1/admin.json")
            export BANYAN_TOKEN
            return
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    say "It did not start:"
    tail -20 "$folder/$1.log" >&2
    exit 1
}

# start_root NAME [DATABASE]
start_root() {
    port=$((20000 + RANDOM % 20000))
    cat >"$folder/$1.toml" <<END
data = "$folder/$1"
listen = "127.0.0.1:$port"
link_listen = "127.0.0.1:$((port + 1))"
names = []
END
    [ -n "${2:-}" ] && echo "database = \"$2\"" >>"$folder/$1.toml"
    target/release/banyan root --config "$folder/$1.toml" >"$folder/$1.log" 2>&1 &
    pid=$!
    started "$1"
}

# start_cloud NAME
start_cloud() {
    port=$((20000 + RANDOM % 20000))
    target/release/banyan up --data "$folder/$1" --listen "127.0.0.1:$port" --no-context --bridge "$bridge" \
        --cgroup-parent "$cgroup" >"$folder/$1.log" 2>&1 &
    pid=$!
    started "$1"
}

wants() {
    [[ " $parts " == *" $1 "* ]]
}

if [ -z "${CLUSTERS_BUILT:-}" ]; then
    step "building"
    cargo build --release --package banyan --package template --bins --examples
fi
bench=target/release/examples/bench

if wants tasks; then
    step "tasks through the queue that do nothing (SQLite)"
    start_root sqlite
    "$bench" tasks "https://127.0.0.1:$((port + 1))" "$pid" - "${cases[@]}"
    stop
    step "tasks through the queue that do nothing (PostgreSQL)"
    start_database
    start_root postgres-root "postgres://postgres@127.0.0.1:$database_port/banyan"
    "$bench" tasks "https://127.0.0.1:$((port + 1))" "$pid" "$(head -1 "$folder/postgres/data/postmaster.pid")" "${cases[@]}"
    stop
fi

if wants ssh; then
    step "one command on many hosts"
    venv=${VENV:-$folder/venv}
    if [ ! -x "$venv/bin/ansible" ]; then
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet ansible-core pyinfra
    fi
    "$bench" ssh "$venv" "${hosts[@]}"
fi

if wants clusters; then
    step "from create to active for the example clusters"
    [ -s target/cluster-image.tar ] || scripts/cluster-image.sh target/cluster-image.tar
    start_cloud cloud
    target/release/banyan image import debian12-cluster target/cluster-image.tar >&2
    "$bench" clusters examples/clusters "${ROUNDS:-3}"
    stop
fi

if wants solver; then
    step "layouts of clusters from templates"
    target/release/examples/solver_bench
fi
