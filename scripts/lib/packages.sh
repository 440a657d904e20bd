# shellcheck shell=bash
# Installs programs with apt-get. For scripts that set $self to their name and run in the root of the project.

say() { printf '%s: %s\n' "$self" "$*"; }
die() { say "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        echo "root is required and sudo is missing: run as root: $*"
        return 1
    fi
}

# need PROGRAM PACKAGE...: installs the packages if the program is missing.
need() {
    has "$1" && return 0
    shift
    apt_install "$@"
}

# apt_install PACKAGE...: installs packages without starting their services. On failure it prints the reason and returns.
apt_install() (
    has apt-get || { echo "please install: $* (names of Debian packages)"; exit 1; }
    # Prevents that the installation of a service starts it.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy" || exit 1
    fi
    # Nor does that of PostgreSQL make a cluster, which a start of the machine would run.
    [[ " $* " != *' postgresql '* ]] || [ -e /etc/postgresql-common/createcluster.conf ] ||
        as_root sh -c 'mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf' || exit 1
    apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    install=("${apt[@]}" install -y --no-install-recommends "$@")
    as_root "${install[@]}" || { as_root "${apt[@]}" update && as_root "${install[@]}"; } || exit 1
    for service in redis-server pgbouncer; do
        [[ " $* " == *" $service "* ]] || continue
        # It was not installed before, so the service is stopped and disabled.
        if [ -d /run/systemd/system ]; then
            as_root systemctl disable --quiet --now $service || true
        else
            as_root sh -c "service $service stop; update-rc.d $service disable" || true
        fi
    done
)

# Whether the programs of other languages have what they need.
has_peers() {
    php -r 'exit(extension_loaded("redis") && extension_loaded("pdo_pgsql") ? 0 : 1);' 2>/dev/null || return 1
    for python in target/interop/venv/bin/python python3 /usr/bin/python3; do
        "$python" -c 'import redis.lock, psycopg' 2>/dev/null && return 0
    done
    return 1
}
