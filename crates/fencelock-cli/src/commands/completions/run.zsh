
# After `fencelock run KEY --` stands the command line of another program.
_fencelock_or_command() {
    local at=${words[(i)--]}
    if (( at < CURRENT )); then
        shift $at words
        (( CURRENT -= at ))
        _normal
    else
        _fencelock "$@"
    fi
}
compdef _fencelock_or_command fencelock
