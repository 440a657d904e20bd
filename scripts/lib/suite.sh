# shellcheck shell=bash
# Runs suites on servers, and writes the table of their results. For scripts that set $into to a directory for the logs.
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh

# run_suite SUITE SERVER ARGUMENTS...: sets $cell to the result, and adds a failure to $failed.
run_suite() {
    local suite=$1 server=$2 name log passed skipped
    shift 2
    name=$(basename "$server") log=$into/$(basename "$server")-$suite.log
    local command=(cargo test --locked "$@")
    [ "$suite" != chaos ] || command=(cargo run --quiet --locked -p fencelock-chaos -- --out "$into/chaos-$name" "$@")
    cell=FAILED
    if ! FENCELOCK_REDIS_SERVER=$server FENCELOCK_REQUIRE_REDIS=1 "${command[@]}" >"$log" 2>&1; then
        failed+=("$name: $suite, see $log") && failures_in "$log"
        return
    fi
    [ "$suite" != chaos ] || { cell=good && return; }
    # A test runner may have started the line.
    skipped=$(grep -c 'SKIPPED ' "$log" || true)
    passed=$(awk '/^test result: ok/ { n += $4 } END { print n + 0 }' "$log")
    grep -o 'SKIPPED .*' "$log" | sed 's/^/    /' || true
    passed=$((passed - skipped))
    # A suite without any test that ran counts as failed.
    if [ "$passed" = 0 ] && [ "$skipped" = 0 ]; then
        failed+=("$name: $suite has run no test, see $log")
        return
    fi
    cell=
    [ "$passed" = 0 ] || cell="$passed passed"
    [ "$skipped" = 0 ] || cell+="${cell:+, }$skipped left out"
}

# write_table TABLE: puts it between its markers in the page.
write_table() {
    local page=docs/en/compatibility.md begin='^<!-- begin: scripts\/test-servers -->$' end='^<!-- end -->$'
    grep -q "$end" "$page" || die "the markers in $page are missing"
    printf '\nRun on %s:\n\n%s\n\n' "$(date +%F)" "$1" >"$into/table"
    sed -i -e "/$begin/,/$end/{//!d}" -e "/$begin/r $into/table" "$page"
    say "wrote $page"
}
