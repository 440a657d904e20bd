# shellcheck shell=bash
# The packages that any system can have, for scripts/lib/try.sh.

prepare_archive() { :; }
install_archive() {
    tar -xzf "$package" -C "$place" --strip-components=1
    command=$place/fencelock
}
check_archive() { (cd "$place" && sha256sum --quiet --check SHA256SUMS); }
remove_archive() { find "$place" -mindepth 1 -delete; }

prepare_wheel() { python3 -m venv "$place/venv"; }
install_wheel() {
    "$place/venv/bin/pip" install --quiet --no-index "$package"
    command=$place/venv/bin/fencelock
}
check_wheel() { :; }
remove_wheel() { "$place/venv/bin/pip" uninstall --quiet --yes fencelock; }

prepare_npm() { :; }
# Offline, so that npm asks nobody for packages of these names.
install_npm() {
    npm install --silent --offline --prefix "$place" "$package" "$into/fencelock-$version.tgz"
    command=$place/node_modules/.bin/fencelock
}
check_npm() { :; }
remove_npm() {
    npm uninstall --silent --offline --prefix "$place" fencelock @fencelock/linux-x64
    # npm leaves the directory of the scope.
    rmdir "$place/node_modules/@fencelock"
    rm -f "$place/node_modules/.package-lock.json" "$place/package-lock.json"
}
