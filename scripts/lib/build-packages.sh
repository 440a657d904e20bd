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

# The file that a proxy of modules serves.
build_go() {
    need go golang-go
    module=github.com/fencelock/fencelock/clients/go
    package=$into/fencelock-go-$version.zip
    rm -f "$into"/*.zip
    (cd clients/go && git archive --prefix="$module@v$version/" --output="$package" HEAD)
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

build_rpm() {
    need rpmbuild rpm
    local root=$into/rpm/root
    lay_out "$root" site-functions licenses
    install -D -m 644 "$stage"/LICENSE-* -t "$root/usr/share/licenses/fencelock"
    install -D -m 644 "$stage/CHANGELOG.md" -t "$root/usr/share/doc/fencelock"
    chmod -R go=rX "$root"
    rm -f "$into"/*.rpm
    rpmbuild --quiet -bb --noclean --buildroot "$root" --define "_topdir $into/rpm" --define "_rpmdir $into" \
        --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' \
        --define '__os_install_post %nil' --define 'debug_package %nil' --define '_build_id_links none' \
        --define '_buildhost localhost' --define "version $version" \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' "$into/source/packaging/fencelock.spec"
    package=$(echo "$into"/*.rpm)
}
