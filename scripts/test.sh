#!/usr/bin/env bash
# The whole of `make test`. Every step runs, also after another one failed, so
# that one run tells everything; the exit status is 0 only if all succeeded.
# The last line is alone on its line: `N passed, N failed`, summed over all
# test binaries.
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/host-packages.sh test
need_cargo
need_root "The tests run real containers, bridges and cgroups, which only root may." "make test"

failed_steps=()
attempt() {
    step "$*"
    "$@" || failed_steps+=("$*")
}

# Tests start servers and containers of their own; more at once than this only makes them wait for each other.
threads=${TEST_THREADS:-$(nproc)}
[ "$threads" -gt 4 ] && threads=4
log=$(mktemp)
trap 'rm -f "$log"' EXIT

attempt cargo fmt --all --check
attempt cargo clippy --workspace --all-targets -- -D warnings
attempt cargo xtask tidy
tests() { cargo test --workspace --no-fail-fast -- --test-threads="$threads" 2>&1 | tee "$log"; }
step "cargo test --workspace (test threads: $threads)"
tests || failed_steps+=("cargo test")

counts=$(awk '
    /^test result: / {
        for (i = 1; i < NF; i++) {
            if ($(i + 1) ~ /^passed/) passed += $i
            if ($(i + 1) ~ /^failed/) failed += $i
            if ($(i + 1) ~ /^ignored/) ignored += $i
        }
    }
    END { printf "%d %d %d\n", passed, failed, ignored }' "$log")
read -r passed failed ignored <<<"$counts"

if [ "$failed" -gt 0 ]; then
    printf '\nFailed tests:\n'
    grep -E '^test .* \.\.\. FAILED' "$log" | sed 's/^test /  /; s/ \.\.\. FAILED$//' || true
fi
printf '\n'
[ "$ignored" -gt 0 ] && printf '%s tests are ignored by default; they are slow and run by name.\n' "$ignored"
for name in "${failed_steps[@]}"; do printf 'FAILED STEP: %s\n' "$name"; done
printf '%s passed, %s failed\n' "$passed" "$failed"
[ ${#failed_steps[@]} -eq 0 ] && [ "$passed" -gt 0 ]
