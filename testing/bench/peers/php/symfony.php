<?php
declare(strict_types=1);

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

/** Symfony's lock as its factory creates it; polls every 90 to 110 ms. */
function symfony(Redis $server, int $ttlMs): Closure
{
    $factory = new LockFactory(new RedisStore($server));
    return static function (string $key) use ($factory, $ttlMs): Closure {
        $lock = $factory->createLock($key, $ttlMs / 1000);
        $lock->acquire(true);
        return static fn () => $lock->release();
    };
}

function symfony_version(): string
{
    if (class_exists(Composer\InstalledVersions::class)) {
        return ltrim(Composer\InstalledVersions::getPrettyVersion('symfony/lock') ?? 'unknown', 'v');
    }
    $version = shell_exec("dpkg-query --show --showformat '\${Version}' php-symfony-lock 2>/dev/null");
    return $version ? "$version (Debian)" : 'unknown';
}
