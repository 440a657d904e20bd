<?php

declare(strict_types=1);

// As composer does it by composer.json.
spl_autoload_register(function (string $class): void {
    foreach (['Fencelock\\Tests\\' => __DIR__, 'Fencelock\\' => dirname(__DIR__) . '/src'] as $prefix => $dir) {
        $file = $dir . '/' . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
            return;
        }
    }
});

require dirname(__DIR__) . '/src/errors.php';
