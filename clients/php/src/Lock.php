<?php

declare(strict_types=1);

namespace Fencelock;

/** What to take, and how. Each method returns a changed copy, so a lock can be kept and taken often. Times are seconds. */
final class Lock
{
    /** @internal @param array<string, mixed> $params of the method `lock` */
    public function __construct(private readonly Client $client, private readonly array $params) {}

    /** Waits at most so long for other holders. Without it, as long as it takes; 0 tries once. */
    public function wait(float $seconds): self
    {
        return $this->with('wait', $seconds);
    }

    /** How long the store keeps the lock of a server that died. While the server lives, it renews. */
    public function ttl(float $seconds): self
    {
        return $this->with('ttl', $seconds);
    }

    /** Shares the keys with others that share them. */
    public function shared(): self
    {
        return $this->with('mode', 'shared');
    }

    /** Takes so many permits of a semaphore. */
    public function permits(int $count): self
    {
        return $this->with('permits', $count);
    }

    /** A text for those who look who holds the key. */
    public function label(string $text): self
    {
        return $this->with('label', $text);
    }

    /** Ends the lock after so long, even if it is not released. The holder has lost it then. */
    public function maxHold(float $seconds): self
    {
        return $this->with('max_hold', $seconds);
    }

    /**
     * Takes the lock. Those who wait are served in order. Keep the result in a variable: the lock is released with it.
     *
     * An exception during the wait, as of a signal handler, withdraws the request.
     *
     * @throws LockBusy if it is still held by others when the wait is over; the message names the holder and the time left
     * @throws Unreachable if the store or the server gives no answer
     * @throws UsageError if a value is not valid
     * @throws FencelockException with the code 71 if the server is being stopped, and -32001 if a limit of the session is reached
     */
    #[\NoDiscard('the lock is released at once')]
    public function acquire(): Held
    {
        $connection = $this->client->connection();
        return $connection->request('lock', $this->params, null, fn (array $result, float $sent) => new Held($connection, $result, $sent));
    }

    /** Takes the lock if it is free at once, and returns null if it is held. @throws FencelockException as {@see Lock::acquire} */
    #[\NoDiscard('the lock is released at once')]
    public function try(): ?Held
    {
        try {
            return $this->wait(0)->acquire();
        } catch (LockBusy) {
            return null;
        }
    }

    /**
     * Takes the lock, calls `$work` with it, and releases it, also after an exception. Returns what `$work` returns.
     *
     * @template T
     * @param callable(Held): T $work
     * @return T
     * @throws LockLost if the lock was lost before the end of the work; what the work threw is its previous exception
     * @throws FencelockException as {@see Lock::acquire}
     */
    public function run(callable $work): mixed
    {
        $held = $this->acquire();
        try {
            return $work($held);
        } finally {
            $held->release();
        }
    }

    private function with(string $name, mixed $value): self
    {
        return new self($this->client, [$name => $value] + $this->params);
    }
}
