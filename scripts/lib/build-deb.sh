# shellcheck shell=bash
# Builds the Debian package. For scripts/packages, after scripts/lib/build-packages.sh.

# A line of the package of the other system.
spec() { sed -n "s/^$1: //p" "$into/source/packaging/fencelock.spec"; }

build_deb() {
    need dpkg-shlibdeps dpkg-dev
    local root=$into/deb/root doc=$into/deb/root/usr/share/doc/fencelock author='The fencelock authors <OWNER@users.noreply.github.com>'
    lay_out "$root" vendor-completions doc
    install -m 644 "$into/source/packaging/debian/copyright" "$doc"
    install -m 644 "$stage/CHANGELOG.md" "$doc/changelog"
    {
        printf 'fencelock (%s-1) unstable; urgency=medium\n\n  * New version, see changelog.gz.\n\n' "$version"
        printf ' -- %s  %s\n' "$author" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
    } >"$doc/changelog.Debian"
    gzip -9n "$doc"/changelog* "$root"/usr/share/man/man1/*
    install -D -m 644 "$into/source/packaging/debian/lintian-overrides" "$root/usr/share/lintian/overrides/fencelock"
    mkdir -p "$root/DEBIAN" "$into/deb/debian"
    echo /etc/fencelock.toml >"$root/DEBIAN/conffiles"
    (cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    # dpkg-shlibdeps wants the file of a source package.
    : >"$into/deb/debian/control"
    cat >"$root/DEBIAN/control" <<END
Package: fencelock
Version: $version-1
Architecture: $(dpkg --print-architecture)
Section: admin
Priority: optional
Maintainer: $author
Homepage: $(spec URL)
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f1)
Depends: $(cd "$into/deb" && dpkg-shlibdeps -O root/usr/bin/fencelock | sed 's/^shlibs:Depends=//')
Description: $(spec Summary)
$(sed -n '/^%description/,/^%files/s/^[^%]/ &/p' "$into/source/packaging/fencelock.spec")
END
    chmod -R go=rX "$root"
    package=$into/fencelock_$version-1_$(dpkg --print-architecture).deb
    rm -f "$into"/*.deb
    dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
}
