# What every script here begins with: strict mode, the root of the repository,
# and a PATH on which cargo and the system tools are found.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin"

say() { printf '%s\n' "$*" >&2; }
step() { printf '\n==> %s\n' "$*" >&2; }

# Ends here when cargo is missing, with the way to get it.
need_cargo() {
    if ! command -v cargo >/dev/null; then
        say "cargo is missing: Banyan is built with Rust 1.95 or later."
        say "Install it with rustup (see https://www.rust-lang.org/tools/install), then run this again."
        exit 1
    fi
}

# Ends here unless run by root, saying why and how.
need_root() {
    [ "$(id -u)" -eq 0 ] && return
    say "$1"
    say "Run it as root, keeping your Rust tools:  sudo env \"PATH=\$PATH\" \"HOME=\$HOME\" $2"
    exit 1
}
