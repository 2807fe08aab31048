#!/usr/bin/env bash
# Finds the host packages that are missing and installs them on Debian and
# Ubuntu as root. Elsewhere it says exactly what is missing and stops.
#
#   scripts/host-packages.sh up      what building and `banyan up` need
#   scripts/host-packages.sh test    also what the tests need
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

missing=()   # Debian packages
reasons=()   # one line per package, for people

# need PACKAGE REASON TEST...: notes the package unless the test succeeds.
need() {
    local package=$1 reason=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        missing+=("$package")
        reasons+=("$(printf '  %-18s %s' "$package" "$reason")")
    fi
}

have() { command -v "$1"; }
have_either() { command -v "$1" || command -v "$2"; }
have_busybox_static() {
    local path
    path=$(command -v busybox) || return 1
    # A dynamic busybox would need the host's libraries inside the image.
    ! LC_ALL=C ldd "$path" 2>/dev/null | grep -q '=>'
}
have_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' || command -v postgres; }

need_up() {
    need build-essential "a C compiler and linker, for building" have cc
    need nftables "nft: address translation and filters" have nft
    need iproute2 "ip: the bridge and the instances' links" have ip
    need busybox-static "becomes the built-in image 'busybox'" have_busybox_static
    need ca-certificates "to trust image registries" test -s /etc/ssl/certs/ca-certificates.crt
}

case "${1:-}" in
up)
    need_up
    need crun "an OCI runtime (runc will do as well)" have_either crun runc
    ;;
test)
    need_up
    need crun "an OCI runtime" have crun
    need runc "the other OCI runtime; both are tested" have runc
    need podman "images as others make them" have podman
    need postgresql "tests start their own PostgreSQL" have_postgres
    need mosquitto "a foreign MQTT broker and client to test against" have mosquitto
    need mosquitto-clients "mosquitto_pub and mosquitto_sub" have mosquitto_pub
    need curl "the API as a stranger calls it" have curl
    need jq "reading its answers" have jq
    need python3-venv "S3 clients from PyPI are installed for a test" python3 -c "import venv, ensurepip"
    need restic "a backup program that keeps its data in S3" have restic
    need e2fsprogs "mkfs.ext4: a disk whose power goes in a test" have mkfs.ext4
    need perl "shuts that disk down" have perl
    need mmdebstrap "the image of the example clusters" have mmdebstrap
    need openssh-server "machines to make ready over SSH" test -x /usr/sbin/sshd
    need puppet-agent "machines are made ready with it too" have puppet
    need git "the tidy check and archives of fixtures" have git
    ;;
*)
    say "usage: scripts/host-packages.sh up|test"
    exit 2
    ;;
esac

[ ${#missing[@]} -eq 0 ] && exit 0

say "Missing on this machine (names of Debian packages):"
printf '%s\n' "${reasons[@]}" >&2

if ! command -v apt-get >/dev/null; then
    say "This is not Debian or Ubuntu: install what is listed above with your own package manager, then run this again."
    exit 1
fi
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" -ne 0 ]; then
    say "Installing needs root. Run:  sudo $command"
    exit 1
fi

# The packages bring services (PostgreSQL, Mosquitto) that nobody asked to run:
# this policy keeps them from being started while they are installed.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
step "$command"
export DEBIAN_FRONTEND=noninteractive
if ! $command >&2; then
    step "apt-get update, then again"
    apt-get update >&2
    $command >&2 || {
        say "The packages could not be installed; the lines above say why. The command was:  $command"
        exit 1
    }
fi
