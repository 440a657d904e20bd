<?php

declare(strict_types=1);

// Errors that a test does not expect are failures, but for what old frameworks do on a newer PHP.
error_reporting(E_ALL & ~E_DEPRECATED);

require __DIR__ . '/autoload.php';

// The frameworks are those of `composer install`, if it was run here, and else those of Debian.
$installed = dirname(__DIR__) . '/vendor/autoload.php';
foreach (is_file($installed) ? [] : ['Symfony/Component/Lock', 'Illuminate/Cache', 'Illuminate/Container', 'Illuminate/Config', 'Illuminate/Events', 'Illuminate/Queue'] as $package) {
    require_once "$package/autoload.php";
}
is_file($installed) && require $installed;

if (!is_executable((string) getenv('FENCELOCK_PROGRAM'))) {
    fwrite(STDERR, "FENCELOCK_PROGRAM must name the program fencelock\n");
    exit(1);
}
