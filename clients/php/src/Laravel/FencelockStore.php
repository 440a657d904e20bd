<?php

declare(strict_types=1);

namespace Fencelock\Laravel;

use Fencelock\Client;
use Fencelock\Held;
use Fencelock\LockLost;
use Illuminate\Contracts\Cache\LockProvider;
use Illuminate\Contracts\Cache\Store;

/**
 * The cache store `fencelock`: locks are those of fencelock, and values are in another store.
 *
 * @see FencelockServiceProvider
 */
final class FencelockStore implements LockProvider, Store
{
    /** @var array<string, Held> The locks of this process by name and owner: `restoreLock` finds them, and a lock may be taken without a variable. */
    private array $held = [];

    public function __construct(private readonly Client $client, private readonly Store $values) {}

    /**
     * A lock that is renewed until it is released, until the process ends (under PHP-FPM, the request), or until `$seconds` are over, if
     * they are not 0.
     *
     * @param string $name
     * @param int $seconds
     * @param ?string $owner
     */
    public function lock($name, $seconds = 0, $owner = null)
    {
        return new FencelockLock($this->client, $this->held, $name, $seconds, $owner);
    }

    /**
     * The lock that this process holds by this owner. A lock of fencelock ends with its process, so those of others are not found: `release`
     * returns false, and `forceRelease` throws.
     *
     * @param string $name
     * @param string $owner
     */
    public function restoreLock($name, $owner)
    {
        return $this->lock($name, 0, $owner);
    }

    /** @internal Removes the locks that are over. @param array<string, Held> $held */
    public static function sweep(array &$held): void
    {
        $held = array_filter($held, function (Held $held): bool {
            try {
                $held->check();
                return true;
            } catch (LockLost) {
                return false;
            }
        });
    }

    public function __destruct()
    {
        self::sweep($this->held);
    }

    public function get($key)
    {
        return $this->values->get($key);
    }

    public function many(array $keys)
    {
        return $this->values->many($keys);
    }

    public function put($key, $value, $seconds)
    {
        return $this->values->put($key, $value, $seconds);
    }

    public function putMany(array $values, $seconds)
    {
        return $this->values->putMany($values, $seconds);
    }

    public function increment($key, $value = 1)
    {
        return $this->values->increment($key, $value);
    }

    public function decrement($key, $value = 1)
    {
        return $this->values->decrement($key, $value);
    }

    public function forever($key, $value)
    {
        return $this->values->forever($key, $value);
    }

    public function touch($key, $seconds)
    {
        return $this->values->touch($key, $seconds);
    }

    public function forget($key)
    {
        return $this->values->forget($key);
    }

    public function flush()
    {
        return $this->values->flush();
    }

    public function getPrefix()
    {
        return $this->values->getPrefix();
    }
}
