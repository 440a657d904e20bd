
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
