# What the measurements share: a database of their own, and leaving nothing behind. Sourced after env.sh by scripts that set
# `folder`, `bridge` and `cgroup`.
database_running=""

# Clouds leave their bridge to the next start on the same data; here there is none.
networks_remove() {
    ip link delete "$bridge" 2>/dev/null || true
    nft delete table inet "$bridge" 2>/dev/null || true
    nft delete table bridge "$bridge" 2>/dev/null || true
    find /sys/fs/cgroup -maxdepth 3 -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null || true
}

as_postgres() {
    local bin
    bin=$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/postgres' | sort -V | tail -1)")
    setpriv --reuid postgres --regid postgres --init-groups "$bin/$1" "${@:2}"
}

start_database() {
    mkdir -p "$folder/postgres"
    chmod 755 "$folder"
    chown postgres: "$folder/postgres"
    as_postgres initdb -D "$folder/postgres/data" -A trust >/dev/null
    database_port=$((20000 + RANDOM % 20000))
    as_postgres pg_ctl -D "$folder/postgres/data" -w -l "$folder/postgres/log" \
        -o "-p $database_port -c listen_addresses=127.0.0.1 -k $folder/postgres" start >/dev/null
    database_running=yes
    as_postgres createdb -h 127.0.0.1 -p "$database_port" banyan
}

stop_database() {
    [ -z "$database_running" ] && return
    as_postgres pg_ctl -D "$folder/postgres/data" -m immediate stop >/dev/null 2>&1 || true
    database_running=""
}
