# shellcheck shell=bash
# Runs the programs of the tests, several at a time.

# nohup, and shells for background jobs, make children ignore some signals. The tests send these signals.
defaults=(env --default-signal=INT,QUIT,HUP,TERM)
"${defaults[@]}" true 2>/dev/null || defaults=()

# Shows the targets, their results, and skipped tests.
progress() { grep --line-buffered -E '^ +(Running|Doc-tests) |^test result: |^SKIPPED |^error|FAILED' || true; }
# failures_in LOG: what the tests that failed have printed.
failures_in() { awk '/^failures:$/ { on = 1 } on { print } /^test result: / { on = 0 }' "$1" | head -c 20000 || true; }

# run_tests LOG [ARGUMENT...]: runs `cargo test` with the arguments, or all tests.
run_tests() {
    local log=$1 failed=
    shift && : >"$log"
    if [ $# = 0 ]; then
        test_programs >target/programs || return 1
        run_programs target/programs || failed=yes
        cat target/programs.logs/*.log >"$log"
        set -- --doc
    fi
    "${defaults[@]}" cargo test --workspace --all-features --locked --no-fail-fast "$@" 2>&1 | tee -a "$log" | progress || failed=yes
    [ -z "$failed" ]
}

# Builds all tests, and prints the directory of the package and the path of each program, one on a line.
test_programs() {
    cargo test --workspace --all-features --locked --no-run --message-format=json-render-diagnostics |
        sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"overflow_checks":[a-z]*,"test":true.*"executable":"\([^"]*\)".*/\1\t\2/p'
}

# Searches and simulations: they keep every processor busy and depend on no clock. The others wait for servers and leases.
searches='/(engine|key_set|quorum_model|register|simulation)-[0-9a-f]+$'

# The longest of the others. They begin first, so that none of them is alone at the end.
longest='/(conformance|fencelock_redis|it|peers|redis|runs)-[0-9a-f]+$'

# run_programs LIST: runs the programs of the list, each with a log of its own: one more at a time than there are processors, because
# they wait most of the time, and then the searches one after the other, because they would slow tests that depend on leases.
run_programs() {
    local failed=
    export logs=$PWD/$1.logs
    rm -rf "$logs" && mkdir -p "$logs"
    { grep -E "$longest" "$1"; grep -vE "$longest|$searches" "$1"; } | run_each "$(($(nproc) + 1))" || failed=yes
    grep -E "$searches" "$1" | run_each 1 || failed=yes
    [ -z "$failed" ]
}

# run_each COUNT: runs the programs of stdin, so many at a time.
run_each() {
    # shellcheck disable=SC2016 # the shell that runs a program expands it
    "${defaults[@]}" xargs -d '\n' -n 1 -P "$1" bash -c '
        directory=${0%%$'"'\t'"'*} program=${0#*$'"'\t'"'} log=$logs/${program##*/}.log
        cd "$directory" || exit 1
        printf "     Running %s\n" "$program" >"$log"
        CARGO_MANIFEST_DIR=$directory "$program" >>"$log" 2>&1 || echo "FAILED: exit code $?" >>"$log"
        grep -E "^     Running |^test result: |^SKIPPED |FAILED" "$log"
        ! grep -q "^FAILED: exit code" "$log"'
}
