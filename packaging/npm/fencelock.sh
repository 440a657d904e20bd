#!/bin/sh
# Becomes the program for this platform: a process that stayed in between would have to pass on every signal, and once only.
set -eu
self=$0
while [ -h "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=$(dirname "$self")/$link ;;
    esac
done
package=$(cd "$(dirname "$self")/.." && pwd -P)
case $(uname -s)-$(uname -m) in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64) platform=linux-arm64 ;;
    Darwin-x86_64) platform=darwin-x64 ;;
    Darwin-arm64) platform=darwin-arm64 ;;
    *) platform=$(uname -s)-$(uname -m) ;;
esac
# npm places the package of the platform below this one, or in a directory of modules above it.
directory=$package
while :; do
    program=$directory/node_modules/@fencelock/$platform/bin/fencelock
    [ ! -x "$program" ] || exec "$program" "$@"
    [ "$directory" != / ] || break
    directory=$(dirname "$directory")
done
echo "fencelock: there is no program for $platform: the package @fencelock/$platform is missing. Install without --omit=optional, or see packaging/README.md of the project." >&2
exit 126
