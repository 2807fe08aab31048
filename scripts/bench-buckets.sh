#!/usr/bin/env bash
# The part of `make bench` about buckets: S3 servers beside each other and beside plain files, in one run.
# Peers come from the registry of crates and are built once, into target/peers. Nothing else is left behind.
#
#   S3_SECONDS=2 S3_CLIENTS="1 16 64" S3_KEYS=1000000 S3_PEERS=yes scripts/bench-buckets.sh
#
# S3_SECONDS=0.3 S3_CLIENTS="1 16" S3_KEYS=50000 is a quick look, S3_SECONDS=15 a long one. With S3_PEERS=no only
# peers that were built before are measured.
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/bench-shared.sh
source scripts/bench-shared.sh

need_cargo
need_root "The store that is measured is that of \`banyan up\`, which only root may start." "scripts/bench-buckets.sh"

seconds=${S3_SECONDS:-2}
clients=${S3_CLIENTS:-1 16 64}
keys=${S3_KEYS:-1000000}
peers=target/peers
# On the disk of the sources, because /tmp may be memory.
mkdir -p target
folder=$(mktemp -d target/bench-buckets.XXXXXX)
folder=$PWD/$folder
bridge="bns$((RANDOM % 10000))"
cgroup="banyan-bench-s3-$$"
declare -A pids=()
servers=$folder/servers

finish() {
    local name
    for name in "${!pids[@]}"; do stop "$name"; done
    networks_remove
    rm -rf "$folder"
}
trap finish EXIT

stop() {
    local pid=${pids[$1]}
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    unset "pids[$1]"
}

port() { echo $((20000 + RANDOM % 20000)); }

# answers NAME ADDRESS: waits until that server takes connections; fails if it ends before.
answers() {
    local _
    for _ in $(seq 300); do
        (exec 3<>"/dev/tcp/${2%:*}/${2#*:}") 2>/dev/null && return
        kill -0 "${pids[$1]}" 2>/dev/null || break
        sleep 0.1
    done
    say "$1 did not start:"
    tail -5 "$folder/$1.log" >&2
    return 1
}

# cloud: a whole cloud on the same data at each call.
cloud() {
    local rest s3
    rest=127.0.0.1:$(port) s3=127.0.0.1:$(port)
    target/release/banyan up --data "$folder/cloud" --listen "$rest" --s3-listen "$s3" --no-context \
        --bridge "$bridge" --cgroup-parent "$cgroup" >"$folder/banyan.log" 2>&1 &
    pids[banyan]=$!
    answers banyan "$s3" || exit 1
    # The first operator's key is written last.
    for _ in $(seq 100); do [ -s "$folder/cloud/admin.json" ] && break || sleep 0.1; done
    echo "banyan $s3 $(jq -r '.access_key_id + " " + .secret_access_key' "$folder/cloud/admin.json")" \
        "${pids[banyan]} $folder/cloud/object"
}

# installed CRATE VERSION OPTION...: builds a peer unless it is there.
installed() {
    local name=$1 version=$2
    shift 2
    [ -x "$peers/bin/$name" ] && return
    [ "${S3_PEERS:-yes}" = yes ] || return 1
    step "building $name $version, once"
    # Garage would build libsodium and run its tests, which takes many minutes; one that is installed will do.
    pkg-config --exists libsodium 2>/dev/null && export SODIUM_USE_PKG_CONFIG=1
    cargo install --quiet --locked --root "$peers" --target-dir "$peers/build" --version "$version" "$@" "$name" && return
    say "$name cannot be installed here; it is left out"
    return 1
}

file_server() {
    local address key=bench-access secret=bench-secret
    installed s3s-fs 0.14.1 --features binary || return 0
    address=127.0.0.1:$(port)
    mkdir -p "$folder/s3s-fs"
    "$peers/bin/s3s-fs" --host 127.0.0.1 --port "${address#*:}" --access-key "$key" --secret-key "$secret" \
        "$folder/s3s-fs" >"$folder/s3s-fs.log" 2>&1 &
    pids[s3s-fs]=$!
    answers s3s-fs "$address" && echo "s3s-fs $address $key $secret ${pids[s3s-fs]} $folder/s3s-fs" >>"$servers"
}

# garage NAME FSYNC
garage() {
    local name=$1 fsync=$2 address rpc
    installed garage 2.5.0 --no-default-features --features bundled-libs,lmdb || return 0
    address=127.0.0.1:$(port) rpc=127.0.0.1:$(port)
    export GARAGE_DEFAULT_ACCESS_KEY=GK0123456789abcdef01234567 GARAGE_DEFAULT_BUCKET=bench
    export GARAGE_DEFAULT_SECRET_KEY=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    mkdir -p "$folder/$name"
    cat >"$folder/$name.toml" <<END
metadata_dir = "$folder/$name/meta"
data_dir = "$folder/$name/data"
db_engine = "lmdb"
replication_factor = 1
metadata_fsync = $fsync
data_fsync = $fsync
rpc_bind_addr = "$rpc"
rpc_public_addr = "$rpc"
rpc_secret = "$GARAGE_DEFAULT_SECRET_KEY"
[s3_api]
s3_region = "us-east-1"
api_bind_addr = "$address"
root_domain = ".s3.localhost"
END
    RUST_LOG=warn "$peers/bin/garage" -c "$folder/$name.toml" server --single-node --default-bucket >"$folder/$name.log" 2>&1 &
    pids[$name]=$!
    answers "$name" "$address" || return 0
    # Its first layout and key are made after it listens.
    sleep 3
    echo "$name $address $GARAGE_DEFAULT_ACCESS_KEY $GARAGE_DEFAULT_SECRET_KEY ${pids[$name]} $folder/$name" >>"$servers"
}

# The store as a process of its own, so that its memory is that of nothing else.
alone() {
    local address
    address=127.0.0.1:$(port)
    echo '[{"id": "bench", "name": "bench", "access_key": "bench-access", "secret_key": "bench-secret"}]' >"$folder/accounts.json"
    target/release/examples/store "$folder/alone" "$address" "$folder/accounts.json" >"$folder/store.log" 2>&1 &
    pids[store]=$!
    answers store "$address" || exit 1
    echo "store-alone $address bench-access bench-secret ${pids[store]} $folder/alone" >"$servers"
}

if [ "${S3_BUILT:-}" != yes ]; then
    step "building"
    cargo build --release --package banyan --package object --bins --examples
fi
bench=target/release/examples/object_bench

step "buckets: S3 servers beside each other, $seconds s a case"
cloud >"$servers"
file_server
garage garage false
garage garage-fsync true
# shellcheck disable=SC2086 # several levels
"$bench" matrix "$servers" "$folder" "$seconds" $clients
for name in "${!pids[@]}"; do stop "$name"; done

step "buckets: names, $keys of them"
"$bench" fill "$keys" "$folder/cloud/object"
cloud >"$servers"
"$bench" names "$servers"
stop banyan

step "buckets: memory"
alone
sleep 5
"$bench" memory "$servers" 64
