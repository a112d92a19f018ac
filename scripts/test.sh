#!/usr/bin/env bash
# Everything that must hold before a change is merged: formats, lints, the crate graph, licences, and all tests.
# Stops at the first thing that does not hold. `make test` runs it; so does CI.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=()

# check WHAT COMMAND...
check() {
    local what=$1 started=$SECONDS
    shift
    printf '\n== %s\n' "$what"
    if ! "$@"; then
        printf '\nFAILED: %s\n' "$what"
        exit 1
    fi
    summary+=("$(printf '%-60s ok  %4d s' "$what" $((SECONDS - started)))")
}

# `set -e` does not hold inside what a condition calls, and `check` is one: hence `|| return` in these two.

# The pure core stays pure: no runtime, no driver, no framework, not even through a dependency's dependency.
crate_graph() {
    local tree forbidden
    tree=$(cargo tree --locked -p rookery-domain -e normal --prefix none --format '{p}') || return
    if forbidden=$(grep -E '^(tokio|mongodb|bson|actix|utoipa)' <<<"$tree"); then
        printf 'rookery-domain must not depend on:\n%s\n' "$forbidden"
        return 1
    fi
    # Only storage names the driver. load-tests measures the raw driver beside the service, and is no part of it.
    local crate
    for crate in rookery-domain rookery-api; do
        if forbidden=$(cargo tree --locked -p "$crate" -e normal --depth 1 --prefix none --format '{p}' | grep -E '^(mongodb|bson) '); then
            printf '%s must not name the driver:\n%s\n' "$crate" "$forbidden"
            return 1
        fi
    done
}

# Licences, duplicates and sources need nothing but the lock file. The advisories need the RustSec database, which lies on GitHub:
# where that cannot be reached this says so, here and in the summary; ROOKERY_REQUIRE_ADVISORIES=1 makes it a failure.
deny() {
    local version deny problem
    version=$(sed -n 's/^DENY_VERSION=//p' scripts/setup.sh)
    deny="${XDG_CACHE_HOME:-$HOME/.cache}/rookery/cargo-deny-$version/bin/cargo-deny"
    "$deny" --locked check --hide-inclusion-graph licenses bans sources || return
    if problem=$(timeout 120 "$deny" --locked fetch db 2>&1); then
        "$deny" --locked check advisories || return
    elif [ "${ROOKERY_REQUIRE_ADVISORIES:-0}" = 1 ]; then
        printf '%s\n' "$problem"
        return 1
    else
        advisories="NOT CHECKED: advisories, for their database cannot be fetched (${problem##*$'\n'})"
        printf '%s\n' "$advisories"
    fi
}
advisories=''

check 'what the tests need is installed (scripts/setup.sh test)' scripts/setup.sh test
check 'the code is formatted (cargo fmt --check)' cargo fmt --all --check
check 'the crate graph is as docs/architecture.md says' crate_graph
check 'licences, sources, advisories (cargo deny)' deny
check 'no lints (cargo clippy)' cargo clippy --locked --workspace --all-targets -- -D warnings
check 'all tests pass (cargo test)' cargo test --locked --workspace

printf '\n'
printf '%s\n' "${summary[@]}"
if [ -n "$advisories" ]; then
    printf '%s\n' "$advisories"
fi
