# shellcheck shell=bash
# Builds the program of a release from the last commit. For scripts that run in the root of the project, after scripts/lib/tools.sh.
target=${FENCELOCK_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0

# use DIRECTORY: builds there from now on. No path of this machine gets into the program. The cargo in front of PATH writes the list
# of the dependencies into it, whoever calls cargo.
use() {
    into=$1 stage=$1/stage program=$1/build/$target/dist/fencelock
    mkdir -p "$into"
    export CARGO_TARGET_DIR=$into/build
    export CARGO_ENCODED_RUSTFLAGS=--remap-path-prefix=$into/source=/fencelock$'\x1f'--remap-path-prefix=$cargo_home=/cargo
    export CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$into=/fencelock"
}

# audited COMMAND...: runs it with a cargo that is cargo-auditable.
audited() {
    mkdir -p "$tools/audited"
    printf '#!/bin/sh\nCARGO=%q exec %q auditable "$@"\n' "$(command -v cargo)" "$tools/bin/cargo-auditable" >"$tools/audited/cargo"
    chmod +x "$tools/audited/cargo"
    env CARGO="$tools/audited/cargo" PATH="$tools/audited:$PATH" "$@"
}

# Lays out the files of the commit in $into/source. Only those that differ from the last ones are written: Cargo compares times.
export_source() {
    mkdir -p "$into/source"
    GIT_INDEX_FILE=$into/index git --work-tree="$into/source" read-tree --reset -u HEAD
}

build_program() (cd "$into/source" && audited cargo build --quiet --locked --profile dist --target "$target" -p fencelock-cli)

# Everything that packages contain, in $stage.
fill_stage() {
    local shell command
    rm -rf "$stage"
    mkdir -p "$stage/man" "$stage/complete"
    install -m 755 "$program" "$stage/fencelock"
    "$program" man >"$stage/man/fencelock.1"
    # The page of the program names those of its commands.
    for command in $(sed -n 's/\\-/-/g; s/^fencelock-\([a-z-]*\)(1)$/\1/p' "$stage/man/fencelock.1"); do
        "$program" man "$command" >"$stage/man/fencelock-$command.1"
    done
    for shell in bash fish; do "$program" completions $shell >"$stage/complete/fencelock.$shell"; done
    "$program" completions zsh >"$stage/complete/_fencelock"
    (cd "$into/source" && cp LICENSE-* CHANGELOG.md crates/fencelock-cli/README.md packaging/fencelock.toml "$stage")
    (cd "$into/source" && python3 scripts/lib/licenses.py "$target") >"$stage/LICENSES-DEPENDENCIES.txt"
    (cd "$into/source/crates/fencelock-cli" && "$tools/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 \
        --no-build-deps --target "$target" --override-filename fencelock.cdx)
    sed "s#$into/source#/fencelock#g" "$into/source/crates/fencelock-cli/fencelock.cdx.json" >"$stage/fencelock.cdx.json"
}
