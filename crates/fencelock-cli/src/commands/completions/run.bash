
# The held keys, for a command whose KEY is one. Readline splits the line at colons too, so it is put together again first.
_fencelock_held() {
    local rest=$COMP_LINE word words=() operands=() url=() last at cur prefix key
    for word in "${COMP_WORDS[@]:0:COMP_CWORD + 1}"; do
        if (( ${#words[@]} )) && [[ $rest != [[:blank:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
    done
    last=$(( ${#words[@]} - 1 )) cur=${words[last]}
    for (( at = 1; at < last; at++ )); do
        case ${words[at]} in
            --url) url=(--url "${words[++at]//[\'\"\\]/}") ;;
            --url=*) url=("${words[at]//[\'\"\\]/}") ;;
            --holder | --permits | --ttl | --wait | -w) (( ++at )) ;;
            -*) ;;
            *) operands+=("${words[at]}") ;;
        esac
    done
    [[ $at == "$last" && $cur != -* && ${#operands[@]} == 1 ]] || return
    case ${operands[0]} in
        status | break | release | renew | resize | wait) ;;
        *) return 1 ;;
    esac
    compopt +o default +o bashdefault 2> /dev/null
    prefix=${cur//\\/}
    [[ $cur == [\'\"]* ]] && prefix=${cur:1}
    COMPREPLY=()
    while IFS= read -r key; do
        case $cur in
            \'*) [[ $key == *\'* ]] || COMPREPLY+=("$key") ;;
            \"*) [[ $key == *[\"\$\`\\!]* ]] || COMPREPLY+=("$key") ;;
            *) printf -v key %q "$key"; COMPREPLY+=("${key#"${cur%"$1"}"}") ;;
        esac
    done < <(_FENCELOCK_COMPLETE=1 command fencelock ${url[@]+"${url[@]}"} list -- "$prefix" 2> /dev/null < /dev/null)
}

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
    _fencelock_held "$2" || _fencelock "$@"
}
complete -F _fencelock_or_command -o bashdefault -o default fencelock
