#!/bin/sh
# Uses an installed program as its first user does: sh one-lock.sh PROGRAM. Runs in systems that have nothing but a shell.
set -eu
program=$1
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export FENCELOCK_URL="file:$directory"

# gives CODE ARGUMENT...: runs the program and compares its exit code.
gives() {
    expected=$1 code=0
    shift
    "$program" "$@" 2>"$directory.log" || code=$?
    [ "$code" = "$expected" ] || { echo "exit code $code instead of $expected: fencelock $*" >&2; cat "$directory.log" >&2; exit 1; }
}

trap 'rm -rf "$directory" "$directory.log"' EXIT
gives 0 --version >/dev/null
gives 0 run demo -- true
gives 7 run demo -- sh -c 'exit 7'
gives 76 run demo --max-hold 1s -- sleep 60

# While it is held, others are told so. A signal to the program ends the command and frees the lock.
"$program" run demo -- sleep 60 2>/dev/null &
holder=$!
attempts=0 code=0
while [ "$code" != 75 ]; do
    code=0
    "$program" run -n demo -- true 2>/dev/null || code=$?
    attempts=$((attempts + 1))
    [ "$attempts" -lt 100 ] || { echo 'a lock that is held is not busy' >&2; exit 1; }
    sleep 0.1
done
kill -TERM "$holder"
code=0
wait "$holder" || code=$?
[ "$code" = 143 ] || { echo "exit code $code instead of 143 after TERM" >&2; exit 1; }
gives 0 run -n demo -- true
