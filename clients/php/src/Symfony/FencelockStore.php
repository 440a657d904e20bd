<?php

declare(strict_types=1);

namespace Fencelock\Symfony;

use Fencelock\Client;
use Fencelock\Held;
use Fencelock\LockBusy;
use Fencelock\LockLost;
use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;

/**
 * A store of symfony/lock: `new LockFactory(new FencelockStore(Client::connect()))`.
 *
 * The server renews a lock until it is released or the process ends, so the TTL of `createLock` is not needed and changes nothing. Those
 * who block wait at the server, in order. `isAcquired()` sees a loss, and `release()` of a lock that was lost throws a
 * LockReleasingException whose previous exception is LockLost. A key cannot be passed to another process.
 */
final class FencelockStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    /** @param ?float $wait seconds that a blocking lock waits at most; null for as long as it takes */
    public function __construct(private readonly Client $client, private readonly ?float $wait = null) {}

    public function save(Key $key): void
    {
        $this->take($key, false, 0);
    }

    public function waitAndSave(Key $key): void
    {
        $this->take($key, false, $this->wait);
    }

    public function saveRead(Key $key): void
    {
        $this->take($key, true, 0);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->take($key, true, $this->wait);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        try {
            ($this->held($key) ?? throw new LockConflictedException("the lock $key is not held"))->check();
        } catch (LockLost $e) {
            throw new LockConflictedException($e->getMessage(), 0, $e);
        }
    }

    public function exists(Key $key): bool
    {
        try {
            $this->held($key)?->check();
            return $this->held($key) !== null;
        } catch (LockLost) {
            return false;
        }
    }

    /** @throws LockLost if the lock was lost before */
    public function delete(Key $key): void
    {
        $held = $this->held($key);
        $key->removeState(self::class);
        $held?->release();
    }

    /**
     * A key that is held already is kept: an exclusive lock is good for reading as well. A shared lock is not made exclusive, because
     * somebody else could write in between.
     */
    private function take(Key $key, bool $shared, ?float $wait): void
    {
        if ($this->exists($key)) {
            [, $isShared] = $key->getState(self::class);
            if ($isShared && !$shared) {
                throw new LockConflictedException("the lock $key is shared: release it before it is taken exclusively");
            }
            return;
        }
        $lock = $this->client->lock((string) $key);
        $lock = $shared ? $lock->shared() : $lock;
        try {
            $key->setState(self::class, [($wait === null ? $lock : $lock->wait($wait))->acquire(), $shared]);
        } catch (LockBusy $e) {
            throw new LockConflictedException($e->getMessage(), 0, $e);
        }
        $key->markUnserializable();
    }

    private function held(Key $key): ?Held
    {
        return $key->hasState(self::class) ? $key->getState(self::class)[0] : null;
    }
}
