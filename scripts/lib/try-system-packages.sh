# shellcheck shell=bash
# The packages of systems, for scripts/lib/try.sh.

# A new system of the release of Debian that runs here.
prepare_deb() {
    need debootstrap debootstrap
    need lintian lintian
    lintian --fail-on error "$package"
    # shellcheck source=/dev/null
    as_root debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$place" >"$place.log" ||
        skip="debootstrap failed: $(tail -1 "$place.log")"
    # shellcheck disable=SC2016 # the inner shell expands it
    enter=(as_root unshare --mount --pid --fork sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$place")
}
install_deb() {
    as_root cp "$package" "$place/fencelock.deb"
    "${enter[@]}" apt-get -qq install -y --no-install-recommends ./fencelock.deb >"$place.log"
    as_root rm "$place/fencelock.deb"
    command=/usr/bin/fencelock
}
check_deb() {
    local path
    for path in etc/fencelock.toml usr/share/man/man1/fencelock{,-run}.1.gz usr/share/bash-completion/completions/fencelock \
        usr/share/zsh/vendor-completions/_fencelock usr/share/fish/vendor_completions.d/fencelock.fish; do
        [ -f "$place/$path" ] || die "the Debian package did not install /$path"
    done
}
remove_deb() {
    "${enter[@]}" apt-get -qq remove -y fencelock >"$place.log"
    [ -f "$place/etc/fencelock.toml" ] || die 'the configuration is gone before the package is purged'
    "${enter[@]}" apt-get -qq purge -y fencelock >"$place.log"
}

prepare_rpm() { need rpm rpm; }
# This is no system of packages of this kind, so the libraries are those of this machine.
install_rpm() {
    # Debian's program warns that it is no package manager here.
    as_root rpm --root "$place" --nodeps --install "$package" 2>"$place.log" || { cat "$place.log" >&2; return 1; }
    command=$place/usr/bin/fencelock
}
check_rpm() { [ -f "$place/etc/fencelock.toml" ] && [ -f "$place/usr/share/man/man1/fencelock-run.1" ]; }
remove_rpm() {
    as_root rpm --root "$place" --erase fencelock 2>"$place.log"
    # The package owns files only.
    as_root find "$place" -depth -type d -empty -name fencelock -delete
}
