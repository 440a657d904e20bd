<?php
// php peer.php AUTOLOAD PORT
//
// Symfony's lock, a sorted set under the key: it and fencelock exclude each other, and share nothing else.
declare(strict_types=1);

require $argv[1];
require __DIR__ . '/../php/protocol.php';

use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock as SymfonyLock;
use Symfony\Component\Lock\Store\RedisStore;

final class Symfony implements Lock
{
    private ?SymfonyLock $lock = null;

    public function __construct(private RedisStore $store)
    {
    }

    public function attempt(string $key, int $ttlMs): bool
    {
        // Without the release in its destructor, which would also release a refused lock.
        $lock = new SymfonyLock(new Key($key), $this->store, $ttlMs / 1000, false);
        if (!$lock->acquire()) {
            return false;
        }
        $this->lock = $lock;
        return true;
    }

    public function release(): bool
    {
        $held = $this->lock->isAcquired();
        $this->lock->release();
        return $held;
    }
}

$servers = connect(array_slice($argv, 2));
$lock = new Symfony(new RedisStore($servers[0]));
serve($lock, $servers, 'PHP ' . PHP_VERSION . ', Symfony Lock');
