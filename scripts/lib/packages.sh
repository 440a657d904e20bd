# shellcheck shell=bash
# Installs programs with apt-get. For scripts that set $self to their name and stand in the root of the project.

say() { printf '%s: %s\n' "$self" "$*"; }
die() { say "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        echo "this needs root, and there is no sudo: run as root: $*"
        return 1
    fi
}

# need PROGRAM PACKAGE...: installs the packages if the program is missing.
need() {
    has "$1" && return 0
    shift
    apt_install "$@"
}

# apt_install PACKAGE...: without starting the services in them. It says why it failed, and does not end the script.
apt_install() (
    has apt-get || { echo "please install: $* (the names of the packages of Debian)"; exit 1; }
    # Installing a service starts it, unless this file says no.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy" || exit 1
    fi
    apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    install=("${apt[@]}" install -y --no-install-recommends "$@")
    as_root "${install[@]}" || { as_root "${apt[@]}" update && as_root "${install[@]}"; } || exit 1
    [[ " $* " == *' redis-server '* ]] || exit 0
    # There was no Redis here before, so this one neither runs now nor starts with the system.
    if [ -d /run/systemd/system ]; then
        as_root systemctl disable --quiet --now redis-server || true
    else
        as_root sh -c 'service redis-server stop; update-rc.d redis-server disable' || true
    fi
)
