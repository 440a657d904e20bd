# shellcheck shell=bash
# Installs the programs that make packages below target/tools, each in one version. For scripts that set $self to their name and run
# in the root of the project.
# shellcheck source=scripts/lib/packages.sh
. scripts/lib/packages.sh
tools=$PWD/target/tools
maturin_wheel="maturin==1.16.0 --hash=sha256:837db2f4d93d4899c3ac393fb3cc9eebf35b6002336e5d574f4a4fb6c49fe283"
mkdir -p "$tools/bin"

# cargo_tool NAME VERSION [OPTION...]: from crates.io. It runs for seconds, so it is not optimized, which would take most of the time,
# except for what it has in C, which compresses.
cargo_tool() {
    local name=$1 version=$2
    [ ! -e "$tools/$name-$version" ] || return 0
    shift 2
    say "installing $name $version"
    env -u CARGO_ENCODED_RUSTFLAGS CFLAGS=-O2 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none CARGO_TARGET_DIR="$tools/build" \
        cargo install --quiet --debug --locked --force --root "$tools" "$@" "$name@$version" || die "$name cannot be installed"
    touch "$tools/$name-$version"
}

# Writes the dependencies of a program into a section of it, and reads them.
auditable() { cargo_tool cargo-auditable 0.7.7 && cargo_tool rust-audit-info 0.5.4 --no-default-features; }
cyclonedx() { cargo_tool cargo-cyclonedx 0.5.9; }

maturin() {
    [ ! -x "$tools/maturin/bin/maturin" ] || return 0
    say "installing ${maturin_wheel%% *}"
    python3 -m venv "$tools/maturin"
    "$tools/maturin/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes -r <(printf '%s\n' "$maturin_wheel") ||
        die 'maturin cannot be installed'
}
