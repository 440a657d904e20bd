# shellcheck shell=bash
# Builds and tries the package of composer, which has the client for PHP and no program. For scripts/packages.

# What Packagist reads from a tag. It says in one place more which version this is.
build_composer() {
    need composer composer
    export_source
    export COMPOSER_ALLOW_SUPERUSER=1 COMPOSER_DISABLE_NETWORK=1
    local client=$into/source/clients/php
    grep -q "\"version\": \"$version\"" "$client/composer.json" || die "composer.json is not of version $version"
    composer validate --quiet --strict --no-check-version -d "$client" || die "composer.json: see \`composer validate\`"
    composer archive --quiet --format=tar --dir="$into" --file="fencelock-php-$version" -d "$client"
    package=$into/fencelock-php-$version.tar
}

# From a path, as composer asks nobody then. The program comes from another package.
prepare_composer() {
    install -D "$program" "$place/bin/fencelock"
    mkdir "$place/package"
    tar -xf "$package" -C "$place/package"
    echo '{"repositories": [{"type": "path", "url": "package", "options": {"symlink": false}}, {"packagist.org": false}]}' >"$place/composer.json"
}
install_composer() {
    composer require --quiet --no-interaction -d "$place" fencelock/fencelock
    command=$place/bin/fencelock
}
check_composer() {
    [ ! -e "$place/vendor/fencelock/fencelock/tests" ] || die 'the package has tests'
    FENCELOCK_PROGRAM=$command php -r '
        require "$argv[1]/vendor/autoload.php";
        Fencelock\Client::connect("file:$argv[1]/locks")->lock("k")->run(fn ($held) => $held->check());
    ' "$place"
    rm -r "$place/locks"
}
remove_composer() {
    composer remove --quiet --no-interaction -d "$place" fencelock/fencelock
    rm -r "$place/bin" "$place/package"
}
