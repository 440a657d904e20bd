# shellcheck shell=bash
# Builds packages from what scripts/dist has made. For scripts/packages.

build_archive() {
    ./scripts/dist
    package=$into/fencelock-$version-$target.tar.gz
}

build_wheel() {
    maturin
    rm -f "$into"/*.whl
    cp "$stage"/{LICENSES-DEPENDENCIES.txt,fencelock.cdx.json} "$into/source"
    (cd "$into/source" && audited "$tools/maturin/bin/maturin" build --quiet --target "$target" --out "$into" \
        --sbom-include fencelock.cdx.json)
    package=$(echo "$into"/*.whl)
}

build_npm() {
    need npm npm
    packaging/npm/build "$into" "$version" "linux-x64=$stage/fencelock"
    package=$into/fencelock-linux-x64-$version.tgz
}

# lay_out DIRECTORY ZSH DOC: what the packages of systems have, at its places. ZSH and DOC differ.
lay_out() {
    rm -rf "$1"
    install -D -m 755 "$stage/fencelock" -t "$1/usr/bin"
    install -D -m 644 "$stage"/man/*.1 -t "$1/usr/share/man/man1"
    install -D -m 644 "$stage/complete/fencelock.bash" "$1/usr/share/bash-completion/completions/fencelock"
    install -D -m 644 "$stage/complete/_fencelock" -t "$1/usr/share/zsh/$2"
    install -D -m 644 "$stage/complete/fencelock.fish" -t "$1/usr/share/fish/vendor_completions.d"
    install -D -m 644 "$stage/fencelock.toml" -t "$1/etc"
    install -D -m 644 "$stage/LICENSES-DEPENDENCIES.txt" -t "$1/usr/share/$3/fencelock"
}
crate() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$into"/source/{crates/fencelock-cli/,}Cargo.toml | head -1; }
described="Cron jobs, deployments and migrations run on one of many machines. The
lock is in files, on Redis or Valkey, in PostgreSQL or in a bucket, and a
command that loses it is ended before another can get it."

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
Homepage: $(crate homepage)
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f1)
Depends: $(cd "$into/deb" && dpkg-shlibdeps -O root/usr/bin/fencelock | sed 's/^shlibs:Depends=//')
Description: $(crate description)
 ${described//$'\n'/$'\n' }
END
    chmod -R go=rX "$root"
    package=$into/fencelock_$version-1_$(dpkg --print-architecture).deb
    rm -f "$into"/*.deb
    dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
}

build_rpm() {
    need rpmbuild rpm
    local root=$into/rpm/root
    lay_out "$root" site-functions licenses
    install -D -m 644 "$stage"/LICENSE-* -t "$root/usr/share/licenses/fencelock"
    install -D -m 644 "$stage/CHANGELOG.md" -t "$root/usr/share/doc/fencelock"
    chmod -R go=rX "$root"
    cat >"$into/rpm/fencelock.spec" <<END
Name: fencelock
Version: $version
Release: 1
Summary: $(crate description)
License: $(crate license)
URL: $(crate homepage)
%description
$described
%files
%config(noreplace) /etc/fencelock.toml
%doc /usr/share/doc/fencelock
%license /usr/share/licenses/fencelock
/usr/bin/fencelock
/usr/share/man/man1/*
/usr/share/bash-completion/completions/fencelock
/usr/share/zsh/site-functions/_fencelock
/usr/share/fish/vendor_completions.d/fencelock.fish
END
    rm -f "$into"/*.rpm
    # The files are as they were laid out: nothing is stripped or compressed again.
    rpmbuild --quiet -bb --noclean --buildroot "$root" --define "_topdir $into/rpm" --define "_rpmdir $into" \
        --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' \
        --define '__os_install_post %nil' --define 'debug_package %nil' --define '_buildhost localhost' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' "$into/rpm/fencelock.spec"
    package=$(echo "$into"/*.rpm)
}
