# shellcheck shell=bash
# Keeps the machine busy.

# burn_processors COUNT: starts so many processes that are never idle. They end with this shell, also if it is interrupted or killed.
burn_processors() {
    local shell=$$
    say "$1 processes use the processors meanwhile"
    for ((i = 0; i < $1; i++)); do
        while kill -0 "$shell" 2>/dev/null; do for ((n = 0; n < 100000; n++)); do :; done; done &
    done
}
