<?php
// php peer.php AUTOLOAD PORT
//
// Laravel's cache lock in an application named "shop": one prefix of the connection, and one of the cache.
declare(strict_types=1);

require $argv[1];
require __DIR__ . '/../php/protocol.php';

use Illuminate\Cache\Lock as LaravelLock;
use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

final class Laravel implements Lock
{
    private ?LaravelLock $lock = null;

    public function __construct(private RedisStore $store)
    {
    }

    public function attempt(string $key, int $ttlMs): bool
    {
        // It uses whole seconds, and 0 means no expiry.
        $lock = $this->store->lock($key, intdiv($ttlMs + 999, 1000));
        if (!$lock->get()) {
            return false;
        }
        $this->lock = $lock;
        return true;
    }

    public function release(): bool
    {
        return $this->lock->release();
    }
}

$servers = connect(array_slice($argv, 2));
$redis = new RedisManager(null, 'phpredis', [
    'options' => ['prefix' => 'shop_database_'],
    'default' => ['host' => '127.0.0.1', 'port' => (int) $argv[2], 'database' => 0],
]);
$lock = new Laravel(new RedisStore($redis, 'shop_cache', 'default'));
serve($lock, $servers, 'PHP ' . PHP_VERSION . ', Laravel');
