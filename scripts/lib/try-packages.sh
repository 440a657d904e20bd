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
# The client finds the program of its environment.
check_wheel() {
    env -u FENCELOCK_PROGRAM -u FENCELOCK_SOCKET PATH=/nowhere "$place/venv/bin/python" -IBc "
import fencelock.contrib, importlib.metadata, os
assert fencelock.__file__.startswith('$place/venv/'), fencelock.__file__
assert importlib.metadata.version('fencelock') == fencelock.__version__ == '$version'
assert os.path.exists(os.path.join(os.path.dirname(fencelock.__file__), 'py.typed'))
with fencelock.Client('file:$place/locks') as client, client.lock('k') as held:
    held.remaining()
"
    rm -r "$place/locks"
}
remove_wheel() { "$place/venv/bin/pip" uninstall --quiet --yes fencelock; }

prepare_npm() { :; }
# Offline, so that npm asks nobody for packages of these names.
install_npm() {
    npm install --silent --offline --prefix "$place" "$package" "$into/fencelock-$version.tgz"
    command=$place/node_modules/.bin/fencelock
}
# The client finds the program that is installed beside it.
check_npm() {
    (cd "$place" && env -u FENCELOCK_PROGRAM PATH="$(dirname "$(command -v node)"):/usr/bin:/bin" node --input-type=module --eval "
        import { connect } from 'fencelock';
        const client = await connect('file:$place/locks');
        await client.run('k', (held) => held.remaining());
        await client.close();
    ")
    rm -r "$place/locks"
}
remove_npm() {
    npm uninstall --silent --offline --prefix "$place" fencelock @fencelock/linux-x64
    # npm leaves the directory of the scope.
    rmdir "$place/node_modules/@fencelock"
    rm -f "$place/node_modules/.package-lock.json" "$place/package-lock.json"
}
