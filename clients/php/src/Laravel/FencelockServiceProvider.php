<?php

declare(strict_types=1);

namespace Fencelock\Laravel;

use Fencelock\Client;
use Illuminate\Support\ServiceProvider;

/**
 * Makes `'driver' => 'fencelock'` known to `config/cache.php`:
 *
 *     'fencelock' => ['driver' => 'fencelock', 'store' => 'redis', 'connect' => env('FENCELOCK_SOCKET')],
 *
 * `store` keeps the values of the cache; without it, `array`. `connect` is the argument of {@see Client::connect}.
 */
final class FencelockServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->booting(fn () => self::extend($this->app->make('cache')));
    }

    /** @internal @param \Illuminate\Cache\CacheManager $cache */
    public static function extend($cache): void
    {
        $cache->extend('fencelock', fn ($app, array $config) => $cache->repository(
            new FencelockStore(Client::connect($config['connect'] ?? null), $cache->store($config['store'] ?? 'array')->getStore()),
        ));
    }
}
