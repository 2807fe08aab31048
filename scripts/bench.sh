#!/usr/bin/env bash
# The whole of `make bench`: starts clouds of its own, measures them beside the
# floor and the competition in the same run, and prints tables. Nothing is left behind.
#
#   RUNS=200 BURST=1000 SCALE=10000 LIST=100000 MILLION=1000000 FLEET=5000 LEVELS="10 100 1000" ROUNDS=5 SETTLE=60 OPENB_DIR=path/to/openb make bench
#
# The parts about clusters and about buckets have settings of their own and run alone too: scripts/bench-clusters.sh and
# scripts/bench-buckets.sh.
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/bench-shared.sh
source scripts/bench-shared.sh

scripts/host-packages.sh test
need_cargo
need_root "The measurements run real containers, which only root may." "make bench"

runs=${RUNS:-200}
burst=${BURST:-1000}
scale=${SCALE:-10000}
list=${LIST:-100000}
# Instances on 5,000 simulated nodes.
million=${MILLION:-1000000}
# Stand-ins for nodes to measure the control plane with, and instances to place on the last number of them.
levels=${LEVELS:-10 100 1000}
fleet=${FLEET:-5000}
# Seconds before an idle process is measured.
settle=${SETTLE:-60}
folder=$(mktemp -d)
bridge="bnb$((RANDOM % 10000))"
cgroup="banyan-bench-$$"
cloud_pid=""
role_pids=()

finish() {
    stop_cloud
    stop_roles
    networks_remove
    stop_database
    rm -rf "$folder"
}
trap finish EXIT

stop_cloud() {
    [ -z "$cloud_pid" ] && return
    kill -TERM "$cloud_pid" 2>/dev/null || true
    wait "$cloud_pid" 2>/dev/null || true
    cloud_pid=""
}

# start_cloud NAME [OPTION...]: sets BANYAN_ENDPOINT and BANYAN_TOKEN.
start_cloud() {
    local name=$1 port
    shift
    port=$((20000 + RANDOM % 20000))
    target/release/banyan up --data "$folder/$name" --listen "127.0.0.1:$port" --no-context \
        --bridge "$bridge" --cgroup-parent "$cgroup" "$@" 2>"$folder/$name.log" >&2 &
    cloud_pid=$!
    export BANYAN_ENDPOINT="http://127.0.0.1:$port"
    for _ in $(seq 300); do
        if curl -fs "$BANYAN_ENDPOINT/v1/health" >/dev/null && [ -s "$folder/$name/admin.json" ]; then
            BANYAN_TOKEN=$(jq -r .token "$folder/$name/admin.json")
            export BANYAN_TOKEN
            return
        fi
        kill -0 "$cloud_pid" 2>/dev/null || break
        sleep 0.1
    done
    say "The cloud did not start:"
    tail -20 "$folder/$name.log" >&2
    exit 1
}

# idle PID WHAT: memory of a process that has nothing to do, and its share of a core over 30 s.
idle() {
    local pid=$1 what=$2 ticks before after seconds=30
    ticks=$(getconf CLK_TCK)
    before=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    sleep "$seconds"
    after=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    awk -v what="$what" '/^VmRSS/ { printf "%-28s %6.1f MB resident", what, $2 / 1000 }' "/proc/$pid/status"
    awk -v used=$((after - before)) -v ticks="$ticks" -v over="$seconds" \
        'BEGIN { printf ", %.2f %% of a core\n", used / ticks / over * 100 }'
}

# role NAME: starts that role from its configuration file and waits until it says that it is up.
role() {
    local name=$1
    target/release/banyan "$name" --config "$folder/$name.toml" >"$folder/$name.log" 2>&1 &
    role_pids+=($!)
    for _ in $(seq 300); do
        grep -q "$name is up" "$folder/$name.log" && return
        kill -0 "${role_pids[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    say "The $name did not start:"
    tail -20 "$folder/$name.log" >&2
    exit 1
}

# Root and a zone as processes of their own.
start_tree() {
    local port=$((20000 + RANDOM % 20000))
    cat >"$folder/root.toml" <<END
data = "$folder/root"
listen = "127.0.0.1:$port"
link_listen = "127.0.0.1:$((port + 1))"
names = []
END
    role root
    export BANYAN_ENDPOINT="http://127.0.0.1:$port"
    BANYAN_TOKEN=$(jq -r .token "$folder/root/admin.json")
    export BANYAN_TOKEN
    cat >"$folder/zone.toml" <<END
name = "bench"
data = "$folder/zone"
root = "https://127.0.0.1:$((port + 1))"
token = "$(target/release/banyan enroll zone 2>>"$folder/enroll.log")"
https_listen = "127.0.0.1:$((port + 2))"
mqtt_listen = "127.0.0.1:$((port + 3))"
names = []
END
    role zone
    zone_url="https://127.0.0.1:$((port + 2))"
    broker="127.0.0.1:$((port + 3))"
}

# The same with a node.
start_roles() {
    start_tree
    cat >"$folder/node.toml" <<END
name = "bench"
data = "$folder/node"
zone = "$zone_url"
broker = "$broker"
token = "$(target/release/banyan enroll node --zone bench 2>>"$folder/enroll.log")"
bridge = "$bridge"
cgroup_parent = "$cgroup"
END
    role node
}

stop_roles() {
    local pid
    for pid in "${role_pids[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    role_pids=()
}

step "building"
# In one go: apart, the packages would ask for other features of what they share, and build it again.
cargo build --release --package banyan --package object --package sim --package placement --package template --package bed --bins --examples
bench=target/release/examples/bench

step "start of one container (SQLite)"
start_cloud sqlite
"$bench" start "$runs" "$folder/sqlite"
stop_cloud

step "idle"
start_cloud idle
sleep "$settle"
idle "$cloud_pid" "banyan up"
stop_cloud
start_roles
sleep "$settle"
idle "${role_pids[0]}" "banyan root alone"
idle "${role_pids[1]}" "banyan zone alone"
idle "${role_pids[2]}" "banyan node alone"
stop_roles

step "$burst creates in a burst that wait for a zone"
start_cloud burst
printf 'SQLite:     '
"$bench" burst "$burst"
stop_cloud
start_database
start_cloud postgres --database "postgres://postgres@127.0.0.1:$database_port/banyan"
printf 'PostgreSQL: '
"$bench" burst "$burst"
stop_cloud

step "$burst creates in a burst that are placed and started (SQLite)"
start_cloud fill --cpu-overcommit 100
"$bench" fill "$burst"
stop_cloud

step "deployment on ten hosts"
target/release/banyan-bed deploy --nodes 10 --rounds "${ROUNDS:-5}"

step "a host dies: until its instance runs elsewhere"
target/release/banyan-bed failover --rounds "${ROUNDS:-5}"

step "control plane with stand-ins for nodes"
rm -rf "$folder/root" "$folder/zone"
start_tree
# shellcheck disable=SC2086 # several levels
"$bench" fleet "$fleet" "$zone_url" "$broker" "${role_pids[0]}" "${role_pids[1]}" $levels
stop_roles

step "placement"
if [ -n "${OPENB_DIR:-}" ]; then
    target/release/examples/placement_bench all "$OPENB_DIR"
else
    say "(set OPENB_DIR to the folder of the openb trace to measure packing as well)"
    target/release/examples/placement_bench speed
fi

step "scale: $scale simulated nodes"
target/release/banyan-sim --scale "$scale"
if [ "$million" != 0 ]; then
    say "$million instances on 5000 simulated nodes (about 8 GB of memory for a million; MILLION=0 leaves it out)"
    target/release/banyan-sim --scale 5000 --instances "$million"
fi

step "lists and filters over $list instances"
"$bench" list "$list"

CLUSTERS_BUILT=yes scripts/bench-clusters.sh

S3_BUILT=yes scripts/bench-buckets.sh
