
# After `fencelock run KEY --` stands the command line of another program.
function __fish_fencelock_in_command
    contains -- -- (commandline -opc)
end

function __fish_fencelock_command
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-1]) (commandline -ct))
end

complete -c fencelock -n __fish_fencelock_in_command -x -a '(__fish_fencelock_command)'

# The held keys.
function __fish_fencelock_held
    set -l words (commandline -opc)
    set -l url (string match -- '--url=*' $words)
    if set -l at (contains -i -- --url $words)
        set url --url $words[(math $at + 1)]
    end
    _FENCELOCK_COMPLETE=1 command fencelock $url list -- (string unescape -- (commandline -ct)) 2>/dev/null </dev/null
end

complete -c fencelock -n "__fish_fencelock_using_subcommand status break release renew resize wait" -f -a '(__fish_fencelock_held)'
complete -c fencelock -n "__fish_fencelock_using_subcommand help man" -f -a '(complete -C "fencelock ")'
