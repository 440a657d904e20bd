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

build_deb() {
    cargo_deb
    need dpkg-shlibdeps dpkg-dev
    {
        printf 'fencelock (%s-1) unstable; urgency=medium\n\n  * New version, see changelog.gz.\n\n' "$version"
        printf ' -- The fencelock authors <OWNER@users.noreply.github.com>  %s\n' "$(date -uRd "@$SOURCE_DATE_EPOCH")"
    } >"$into/debian-changelog"
    rm -f "$into"/*.deb
    "$tools/bin/cargo-deb" deb --quiet --locked -p fencelock-cli --no-build --no-strip --profile dist --target "$target" --output "$into/"
    package=$(echo "$into"/*.deb)
}

build_rpm() {
    cargo_generate_rpm
    rm -f "$into"/*.rpm
    "$tools/bin/cargo-generate-rpm" generate-rpm -p crates/fencelock-cli --profile dist --target "$target" \
        --auto-req builtin --output "$into/"
    package=$(echo "$into"/*.rpm)
}
