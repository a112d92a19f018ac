#!/usr/bin/env bash
# Installs what a fresh Debian 12 with Rust lacks. Asks nothing, and does nothing where nothing is missing.
#
#   setup.sh               a C compiler and the database: enough to build and to run
#   setup.sh test          also a browser and cargo-deny: enough for `make test`
#   setup.sh packages P... these system packages only
#
# System packages come by apt-get, as root or through a sudo that asks for no password; otherwise one line says what to install.
# Tools are built once for all clones, in ${XDG_CACHE_HOME:-$HOME/.cache}/rookery. A tool is put in its place complete or not at all.
set -euo pipefail

# The database, where there is no mongod: a MongoDB-wire server over WiredTiger. It is GPL: run as a process of its own, never linked.
# The same version stands in storage/src/embedded/server.rs; a test compares them.
SECANTUS_VERSION=0.5.3-beta.196
DENY_VERSION=0.20.2

tools="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/rookery"
logs="$tools/log"

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# step WHAT LOG COMMAND...: runs the command. On a terminal one sees its own progress; elsewhere its output goes to the log, with
# a sign of life every ten seconds, and the end of the log where it fails.
step() {
    local what=$1 log="$logs/$2" started=$SECONDS next=10 child
    shift 2
    mkdir -p "$logs"
    say "$what"
    if [ -t 2 ]; then
        "$@" >&2
    else
        "$@" >"$log" 2>&1 </dev/null &
        child=$!
        # shellcheck disable=SC2064 # the child of now is meant
        trap "kill $child 2>/dev/null || true" EXIT
        while kill -0 "$child" 2>/dev/null; do
            if [ $((SECONDS - started)) -ge $next ]; then
                say "$what: $((SECONDS - started)) s ($(tail -n 1 "$log" | tr -d '\r' | sed 's/^ *//' | cut -c 1-80))"
                next=$((next + 10))
            fi
            sleep 0.2
        done
        trap - EXIT
        if ! wait "$child"; then
            tail -n 30 "$log" >&2
            say "failed: $what (all of it in $log)"
            return 1
        fi
    fi
    say "$what: done in $((SECONDS - started)) s"
}

# packages P...: installs system packages.
packages() {
    local as_root=()
    if ! have apt-get; then
        say "please install what Debian calls: $*"
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            say "please run: sudo apt-get install -y --no-install-recommends $*"
            exit 1
        fi
        as_root=(sudo -n)
    fi
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600)
    step "reading the lists of system packages" apt-update.log "${apt[@]}" update || say "going on with the old lists"
    step "installing system packages: $*" apt-install.log "${apt[@]}" install -y --no-install-recommends "$@"
}

# tool CRATE VERSION FLAG...: builds a tool into its own folder, one at a time over all clones.
tool() {
    local name="$1-$2" crate=$1 version=$2 target
    shift 2
    target="$tools/$name"
    mkdir -p "$tools"
    (
        if ! flock -n 9; then
            say "another set-up is building $name: waiting for it"
            flock 9
        fi
        if [ -d "$target/bin" ]; then
            exit 0
        fi
        # Nothing of an earlier try is used: one that failed for want of a compiler would leave what makes every later one fail.
        rm -rf "$target" "$target.partial" "$target.build"
        CARGO_TARGET_DIR="$target.build" step "building $crate $version (once for all clones; some minutes)" "$name.log" \
            cargo install "$crate" --version "$version" --locked --root "$target.partial" "$@" 9>&-
        mv -T "$target.partial" "$target"
        rm -rf "$target.build"
    ) 9>"$tools/$name.lock"
}

if [ "${1:-}" = packages ]; then
    shift
    packages "$@"
    exit
fi

if ! have cargo; then
    say "please install Rust 1.95 or newer: https://rustup.rs"
    exit 1
fi

needs_database=true
if have mongod || have secantusd-rs || [ -x "$tools/secantus-mdb-$SECANTUS_VERSION/bin/secantusd-rs" ]; then
    needs_database=false
fi

missing=()
have cc && [ -e /usr/include/stdlib.h ] || missing+=(gcc libc6-dev)
# Ends the database with its parent: util-linux; a Debian always has it.
have setpriv && have flock || missing+=(util-linux)
if $needs_database; then
    have cmake || missing+=(cmake)
    have make || missing+=(make)
    # Its build asks for a C++ compiler and then does not use it.
    have c++ || missing+=(g++)
fi
if [ "${1:-}" = test ]; then
    have chromium || missing+=(chromium)
fi
if [ ${#missing[@]} -gt 0 ]; then
    packages "${missing[@]}"
fi

if $needs_database; then
    # It declares a newer Rust than it needs.
    tool secantus-mdb "$SECANTUS_VERSION" --ignore-rust-version
fi
if [ "${1:-}" = test ]; then
    if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
        step "adding rustfmt and clippy to the toolchain" rustup.log rustup component add rustfmt clippy
    fi
    # It runs for a second; its own profile would have it optimised for many minutes.
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
        tool cargo-deny "$DENY_VERSION"
fi
