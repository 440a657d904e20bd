# shellcheck shell=bash
# Tries packages. For scripts/packages.
#
# prepare_KIND makes the place in which the package is installed, below the empty directory $place, or sets $skip to the reason why
# it cannot. install_KIND installs the package and sets $command to the program, if it has one. check_KIND looks at what else was installed.
# remove_KIND removes the package. The words $enter come before a command that runs in the place.

# seconds COMMAND...: runs it, and sets $seconds to how long it took.
seconds() {
    local begin=${EPOCHREALTIME/[.,]/}
    "$@"
    seconds=$(printf '%d.%d' $(((${EPOCHREALTIME/[.,]/} - begin) / 1000000)) $(((${EPOCHREALTIME/[.,]/} - begin) / 100000 % 10)))
}

# try KIND: installs the $package of this kind, uses it and removes it. Sets $seconds to the time of the installation, and $tried.
try() {
    local kind=$1 left
    skip='' enter=() command='' place=$(mktemp -d "$into/try-$kind.XXXXXX")
    seconds "prepare_$kind"
    if [ -n "$skip" ]; then
        [ -z "${CI:-}" ] || die "the $kind package cannot be tried: $skip"
        seconds=-
        tried="not tried: $skip"
    else
        seconds "install_$kind"
        "check_$kind"
        if [ -n "$command" ]; then
            # It carries the program of the archive, once.
            cmp "$(find "$place" -xdev -type f -name fencelock -size +1M)" "$program"
            "${enter[@]}" sh -c "$(cat scripts/lib/one-lock.sh)" one-lock "$command"
        fi
        "remove_$kind"
        left=$(find "$place" -xdev -iname '*fencelock*' -print -quit)
        [ -z "$left" ] || die "the removal leaves $left"
        tried=tried
    fi
    as_root rm -rf "$place" "$place.log"
}
