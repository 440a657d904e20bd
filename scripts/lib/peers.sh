# shellcheck shell=bash
# Installs the lock libraries of other languages below target/interop. For scripts that set $self to their name and run in the
# root of the project. No function ends the script: on failure it prints the reason and returns 1.
into=$PWD/target/interop
log=$into/install.log
mkdir -p "$into"
# shellcheck source=scripts/lib/packages.sh
. scripts/lib/packages.sh

# each FUNCTION...: runs the functions; a library that cannot be installed is skipped with a message that gives the reason.
each() {
    local library
    for library in "$@"; do
        say "installing $library"
        if ! "$library" >"$log" 2>&1 </dev/null; then
            say "SKIPPED $library: $(grep -v '^ *$' "$log" | tail -3 | tr '\n' ' ')"
        fi
    done
}

# A newer redis-py in place of Debian's, and packages that need it. They run on the machine of the user, so every version is
# pinned; update them by hand after a review of the changes.
of_python() {
    need python3 python3 python3-venv || return 1
    [ -x "$into/venv/bin/pip" ] || python3 -m venv "$into/venv" ||
        { apt_install python3-venv && python3 -m venv "$into/venv"; } || return 1
    "$into/venv/bin/pip" install --quiet --no-deps -r testing/interop/peers/python/requirements.txt
}

# In one call: npm removes packages that are not listed.
of_node() {
    need node nodejs && need npm npm || return 1
    mkdir -p "$into/node"
    npm install --prefix "$into/node" --no-save --no-audit --no-fund redlock@5.0.0-beta.2 ioredis@5.9.2 redis-semaphore@5.8.0
}

# From its own registry, or, if that is unreachable, an older version from Debian.
symfony() {
    need php php-cli && { php -r 'exit(extension_loaded("redis") ? 0 : 1);' || apt_install php-redis; } || return 1
    mkdir -p "$into/symfony"
    if need composer composer && COMPOSER_ALLOW_SUPERUSER=1 composer require --quiet --no-interaction \
        --working-dir="$into/symfony" symfony/lock:7.2.0; then
        ln -sf vendor/autoload.php "$into/symfony/autoload.php"
    else
        echo 'composer failed; trying php-symfony-lock of Debian'
        apt_install php-symfony-lock && ln -sf /usr/share/php/Symfony/Component/Lock/autoload.php "$into/symfony/autoload.php"
    fi
}

# redisson_with SOURCE CLASSES: installs the library, and compiles a program against it.
redisson_with() {
    need mvn maven && need javac default-jdk-headless || return 1
    mkdir -p "$into/redisson/$2"
    mvn --quiet --batch-mode --file testing/interop/peers/java-redisson/pom.xml dependency:copy-dependencies \
        -DoutputDirectory="$into/redisson/lib" || return 1
    javac -cp "$into/redisson/lib/*" -sourcepath "$(dirname "$1")" -d "$into/redisson/$2" "$1"
}
