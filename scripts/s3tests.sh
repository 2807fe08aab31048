#!/usr/bin/env bash
# Runs the public conformance suite of S3, ceph/s3-tests, against a store of this repository, and counts. The suite is
# not part of the repository: name the folder of a clone of https://github.com/ceph/s3-tests.
#
#   S3TESTS_DIR=~/s3-tests make s3tests
#   S3TESTS_DIR=~/s3-tests scripts/s3tests.sh s3tests/functional/test_s3.py -k tagging
#
# Without arguments it runs all that S3 itself has; what is left out is named below, with the reason. S3TESTS_DAY=10 is
# the length of a day in seconds, S3TESTS_JOBS=2 how many tests run at once. What it needs of PyPI goes to target/s3tests.
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

need_cargo
suite=${S3TESTS_DIR:-}
if [ ! -f "$suite/s3tests/functional/test_s3.py" ]; then
    say "S3TESTS_DIR must name a clone of ceph/s3-tests:"
    say "  git clone https://github.com/ceph/s3-tests ~/s3-tests && S3TESTS_DIR=~/s3-tests make s3tests"
    exit 2
fi
suite=$(cd "$suite" && pwd)
day=${S3TESTS_DAY:-10}
jobs=${S3TESTS_JOBS:-2}
# Kinds of tests that only Ceph can pass: appending, tiers in other clouds, its classes of storage, its calls for logs
# and for users, roles and accounts.
others='appendobject or bucket_logging_cleanup or cloud_transition or cloud_restore or target_by_bucket'
others+=' or lifecycle_transition or iam_account or iam_user or iam_role or iam_tenant or sns or fails_on_s3'
# Single tests: S3 answers otherwise than Ceph, or has no such thing (tenants in names of buckets, logs into buckets of
# other accounts, a record for each deleted object under Ceph's name, its headers and calls).
foreign=(
    test_account_usage test_head_bucket_usage
    test_bucket_policy_different_tenant test_bucket_policy_tenanted_bucket
    test_bucket_logging_{mtime,owner,permission_change_s,multi_delete,multiple_prefixes}
    test_put_bucket_logging_{errors,policy_wildcard,tenant_s,account_s}
)
# Single tests that cannot ask what they mean to: the client signs after the test has spoiled the request and puts it
# right again, a header is set on another client, or is that of the next request, or a key is written as good UTF-8.
spoiled=(
    test_bucket_logging_request_id test_object_read_unreadable
    test_bucket_policy_put_obj_request_obj_tag test_bucket_policy_set_condition_operator_end_with_IfExists
)
spoiled_headers=(
    test_object_create_bad_contentlength_none
    test_{object,bucket}_create_bad_authorization_{empty,none}
    test_object_create_bad_authorization_{incorrect,invalid}_aws2 test_bucket_create_bad_authorization_invalid_aws2
    test_{object,bucket}_create_bad_date_none_aws2
)
# It looks at all buckets of the account, so others may not make any beside it.
alone=test_list_buckets_paginated

tools=target/s3tests/tools
if [ ! -x "$tools/bin/pytest" ]; then
    step "installing what the suite needs, once"
    mkdir -p target/s3tests
    python3 -m venv "$tools"
    # tox and gevent run it otherwise.
    grep -vE '^(#|tox|gevent)' "$suite/requirements.txt" | "$tools/bin/pip" install --quiet --requirement /dev/stdin pytest-xdist
fi
step "building"
cargo build --package object --example store

folder=$(mktemp -d target/s3tests/run.XXXXXX)
folder=$PWD/$folder
store=
finish() {
    [ -z "$store" ] || { kill -INT "$store" && wait "$store"; } 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

# One line for each account: section, id, name, e-mail, key, secret.
random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
accounts=$folder/accounts
while read -r section name; do
    echo "$section $(random 32) $name $name@example.com $(random 10) $(random 20)"
done >"$accounts" <<'NAMES'
s3.main tester
s3.alt other
s3.tenant third
iam fourth
iam.root fifth
iam.alt.root sixth
NAMES
awk 'BEGIN { print "[" }
    { printf "%s{\"id\":\"%s\",\"name\":\"%s\",\"email\":\"%s\",\"access_key\":\"%s\",\"secret_key\":\"%s\"}\n",
        (NR == 1 ? "" : ","), $2, $3, $4, $5, $6 }
    END { print "]" }' "$accounts" >"$folder/accounts.json"

target/debug/examples/store "$folder/data" 127.0.0.1:0 "$folder/accounts.json" "$day" 2>"$folder/store.log" &
store=$!
port=
for _ in $(seq 300); do
    port=$(sed -n 's/^serving S3 on 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$folder/store.log")
    [ -n "$port" ] && break
    kill -0 "$store" 2>/dev/null || break
    sleep 0.1
done
if [ -z "$port" ]; then
    say "the store did not start:"
    tail -5 "$folder/store.log" >&2
    exit 1
fi

{
    printf '[DEFAULT]\nhost = localhost\nport = %s\nis_secure = False\nssl_verify = False\n\n' "$port"
    printf '[fixtures]\nbucket prefix = banyan-{random}-\n\n'
    while read -r section id name email key secret; do
        printf '[%s]\nuser_id = %s\ndisplay_name = %s\nemail = %s\naccess_key = %s\nsecret_key = %s\n' \
            "${section//./ }" "$id" "$name" "$email" "$key" "$secret"
        [ "$section" = s3.main ] && printf 'api_name = default\nlc_debug_interval = %s\n' "$day"
        [ "$section" = s3.tenant ] && printf 'tenant = \n'
        echo
    done <"$accounts"
} >"$folder/s3tests.conf"

step "ceph/s3-tests on 127.0.0.1:$port, with days of $day seconds"
python=$PWD/$tools/bin/python
status=0
# run NAME OPTION...: what came of it goes to a file of that name.
run() {
    (
        cd "$suite"
        export PYTHONDONTWRITEBYTECODE=1 S3TEST_CONF=$folder/s3tests.conf
        exec "$python" -m pytest -p no:cacheprovider -q --tb=line --show-capture=no --junitxml="$folder/$1.xml" "${@:2}"
    ) || status=1
}
if [ $# -gt 0 ]; then
    run told -n "$jobs" "$@"
else
    objects=s3tests/functional/test_s3.py headers=s3tests/functional/test_headers.py
    left=("${foreign[@]/#/--deselect=$objects::}" "${spoiled[@]/#/--deselect=$objects::}")
    left+=("${spoiled_headers[@]/#/--deselect=$headers::}")
    run told -n "$jobs" "$objects" "$headers" -m "not ($others)" "${left[@]}" --deselect="$objects::$alone"
    run told-alone "$objects::$alone"
fi
if compgen -G "$folder/told*.xml" >/dev/null; then
    "$python" - "$folder"/told*.xml <<'COUNT'
import collections, sys, xml.etree.ElementTree as tree
counts = collections.defaultdict(collections.Counter)
for told in sys.argv[1:]:
    for case in tree.parse(told).getroot().iter("testcase"):
        ends = [end for end in ("failure", "error", "skipped") if case.find(end) is not None]
        counts[case.get("classname").split(".")[-1]][ends[0] if ends else "passed"] += 1
for name, ends in sorted(counts.items()):
    print(f"{name}: {ends['passed']} passed, {ends['failure'] + ends['error']} failed, {ends['skipped']} skipped")
COUNT
fi
exit "$status"
