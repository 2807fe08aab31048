#!/usr/bin/env bash
# Makes a Debian root file system that can be a machine of the clusters in examples/clusters: sshd, and the packages
# they install, so that no machine needs the network for that.
#
#   scripts/cluster-image.sh [FILE]      target/cluster-image.tar unless named
#   banyan image import debian12-cluster target/cluster-image.tar
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

file=${1:-target/cluster-image.tar}
packages=openssh-server,procps,nginx-light,haproxy,postgresql,etcd-server,etcd-client
command -v mmdebstrap >/dev/null || { say "mmdebstrap is missing: apt-get install mmdebstrap"; exit 1; }
# The sources of this machine, so that its mirror is used.
mapfile -t sources < <(find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.sources' -o -name '*.list' -size +0 2>/dev/null | sort)
mkdir -p "$(dirname "$file")"
step "making $file"
mmdebstrap --quiet --format=tar --variant=minbase --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --customize-hook='rm -f "$1"/etc/ssh/ssh_host_*' bookworm "$file.new" "${sources[@]}"
mv "$file.new" "$file"
