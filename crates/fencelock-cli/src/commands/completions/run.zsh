
# The held keys.
_fencelock_held() {
    local -a url=(${(Q)_fencelock_words[(R)--url=*]}) keys
    local at=${_fencelock_words[(I)--url]}
    (( at )) && url=(--url ${(Q)_fencelock_words[at + 1]})
    keys=(${(f)"$(_FENCELOCK_COMPLETE=1 command fencelock $url list -- ${(Q)PREFIX} 2> /dev/null < /dev/null)"})
    _wanted keys expl 'held key' compadd -a keys
}

# After `fencelock run KEY --` stands the command line of another program.
_fencelock_or_command() {
    local at=${words[(i)--]}
    local -a _fencelock_words=("${words[@]}")
    if (( at < CURRENT )); then
        shift $at words
        (( CURRENT -= at ))
        _normal
    else
        _fencelock "$@"
    fi
}

compdef _fencelock_or_command fencelock
if [ "$funcstack[1]" = "_fencelock" ]; then
    _fencelock_or_command "$@"
fi
