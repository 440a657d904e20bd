<?php

declare(strict_types=1);

namespace Fencelock\Laravel;

use Fencelock\Client;
use Fencelock\FencelockException;
use Fencelock\Held;
use Fencelock\LockBusy;
use Fencelock\LockLost;
use Illuminate\Cache\Lock;
use Illuminate\Contracts\Cache\LockTimeoutException;

/** A lock of Laravel that is held by `fencelock serve`. */
final class FencelockLock extends Lock
{
    /**
     * @param array<string, Held> $held the locks of the store, by reference
     * @param string $name
     * @param int $seconds
     * @param ?string $owner
     */
    public function __construct(private readonly Client $client, private array &$held, $name, $seconds, $owner = null)
    {
        parent::__construct($name, $seconds, $owner);
    }

    /** Takes the lock if nobody has it. @throws FencelockException if the server cannot be asked */
    public function acquire()
    {
        return $this->take(0);
    }

    /**
     * Waits at the server, which serves those who wait in order and without polling.
     *
     * @param int $seconds
     * @param ?callable $callback
     * @throws LockTimeoutException if others hold the lock for all the time; the previous exception names the holder
     */
    public function block($seconds, $callback = null)
    {
        if (!$this->take($seconds, $busy)) {
            throw new LockTimeoutException($busy->getMessage(), 0, $busy);
        }
        if (!is_callable($callback)) {
            return true;
        }
        try {
            return $callback();
        } finally {
            $this->release();
        }
    }

    /**
     * Releases the lock. Returns false if this owner does not hold it in this process.
     *
     * @throws LockLost if it was lost before: broken, deleted, or over after its seconds
     */
    public function release()
    {
        $held = $this->held[$this->slot()] ?? null;
        unset($this->held[$this->slot()]);
        $held?->release();
        return $held !== null;
    }

    /** Releases the lock whoever holds it in this process. @throws LockBusy if another process does: `fencelock break` ends it */
    public function forceRelease()
    {
        foreach (preg_grep('/^' . preg_quote($this->name . "\0", '/') . '/', array_keys($this->held)) as $slot) {
            $held = $this->held[$slot];
            unset($this->held[$slot]);
            $held->release();
        }
        $status = $this->client->status($this->name);
        if ($status['held']) {
            $message = "another process holds $this->name: see `fencelock status`, and end it with `fencelock break`";
            throw new LockBusy($message, 75, $this->name, $status['owner']);
        }
    }

    /** The fencing token, to be sent with each write, or null if the lock is not held here. */
    public function token(): ?int
    {
        return ($this->held[$this->slot()] ?? null)?->token;
    }

    /** Returns if the lock is held here. @throws LockLost if not */
    public function check(): void
    {
        $held = $this->held[$this->slot()] ?? null;
        $held === null && throw new LockLost("the lock $this->name is not held by $this->owner in this process", 76, $this->name);
        $held->check();
    }

    /** Whether any process holds the lock. */
    public function isLocked(): bool
    {
        return $this->client->status($this->name)['held'];
    }

    /**
     * Whether the lock is held here. A lock without seconds is renewed anyway.
     *
     * @param ?int $seconds
     * @throws \LogicException if the lock has seconds: they end it, and cannot be changed
     */
    public function refresh($seconds = null)
    {
        $this->seconds > 0 && throw new \LogicException("the lock $this->name ends after its $this->seconds seconds: take it without seconds, and it is renewed");
        return $this->getCurrentOwner() !== null;
    }

    protected function getCurrentOwner()
    {
        try {
            $this->check();
            return $this->owner;
        } catch (LockLost) {
            return null;
        }
    }

    private function take(float $wait, ?LockBusy &$busy = null): bool
    {
        $lock = $this->client->lock($this->name)->wait($wait);
        try {
            $held = ($this->seconds > 0 ? $lock->maxHold($this->seconds) : $lock)->acquire();
            $this->held[$this->slot()] = $held;
            // Who takes a lock for some seconds, and keeps no variable, leaves it here.
            random_int(1, count($this->held)) === 1 && FencelockStore::sweep($this->held);
            return true;
        } catch (LockBusy $busy) {
            return false;
        }
    }

    private function slot(): string
    {
        return "$this->name\0$this->owner";
    }
}
