
# After `fencelock run KEY --` stands the command line of another program.
_fencelock_or_command() {
    local at
    for (( at = 1; at < COMP_CWORD; at++ )); do
        if [[ ${COMP_WORDS[at]} == -- ]]; then
            if declare -F _comp_command_offset > /dev/null; then
                _comp_command_offset $(( at + 1 ))
            elif declare -F _command_offset > /dev/null; then
                _command_offset $(( at + 1 ))
            elif (( COMP_CWORD == at + 1 )); then
                COMPREPLY=( $(compgen -c -- "${COMP_WORDS[COMP_CWORD]}") )
            else
                COMPREPLY=( $(compgen -f -- "${COMP_WORDS[COMP_CWORD]}") )
            fi
            return
        fi
    done
    _fencelock "$@"
}
complete -F _fencelock_or_command -o bashdefault -o default fencelock
