<?php

declare(strict_types=1);

namespace Fencelock;

/**
 * A lock that is held. The server renews it until {@see Held::release}, or until this object is gone: then it is released in the background.
 *
 * PHP has no thread that could tell a loss. Call {@see Held::check} before each step that must not be done without the lock, and send the
 * token with each write, so that the receiver refuses those of an older holder.
 */
final class Held
{
    private const RELEASED = 'it was released';

    /** @var list<string> The keys. */
    public readonly array $keys;
    /** @var list<int> The fencing tokens of the keys, in their order. Each grant of a key has a larger one than the grant before. */
    public readonly array $tokens;
    /** The fencing token of the (first) key. */
    public readonly int $token;
    /** The number of the slot, of {@see Client::slots}. */
    public readonly ?int $slot;

    private readonly int $hold;
    /** Why it is not held any more, or null. */
    private ?string $lost = null;
    /** @var array{float, float, float} The end of the time that the server last told by the monotonic clock, by the other, and the time. */
    private array $told;

    /** @internal @param array<string, mixed> $result of the method `lock`, asked for at `$sent` */
    public function __construct(private readonly Connection $connection, array $result, float $sent)
    {
        $this->hold = $result['hold'];
        [$this->keys, $this->tokens] = [$result['keys'] ?? [$result['key']], $result['tokens'] ?? [$result['token']]];
        [$this->token, $this->slot] = [$this->tokens[0], $result['slot'] ?? null];
        $this->tell($result, $sent);
        $this->check(); // a grant that was read late may be over
    }

    /**
     * Returns if the lock is held, and otherwise throws. Reads what the server has sent, which takes microseconds; when half of the time is
     * over that the server last told, it is asked again.
     *
     * @throws LockLost if the lock is lost: its key was deleted, it could not be renewed, the connection has ended, the server has not
     *     answered within a second, or this process is a fork of the holder
     */
    public function check(): void
    {
        $this->look();
        $this->left() >= $this->told[2] / 2 || $this->remaining();
    }

    /**
     * Asks the server, and returns for how many seconds the lock is held even if it is not renewed any more. In files, where the kernel
     * keeps it for the server, they are INF.
     *
     * @throws LockLost as {@see Held::check}
     */
    public function remaining(): float
    {
        $this->look();
        try {
            $this->connection->request('remaining', ['hold' => $this->hold], 1.0, fn (array $result, float $sent) => $this->tell($result, $sent));
            $this->lost = $this->left() > 0 ? null : 'its time is over';
        } catch (FencelockException $e) {
            $this->lost = $e->getMessage();
            $this->connection->send('release', ['hold' => $this->hold]);
        }
        $this->look();
        return $this->left();
    }

    /**
     * Releases the lock, and returns when that is confirmed. Does nothing if it is released already, or in a fork of the holder.
     *
     * @throws LockLost if the lock was lost before: others may have held it meanwhile
     * @throws Unreachable if the release is not confirmed: the lock ends at the latest after its TTL
     */
    public function release(): void
    {
        if ($this->connection->mine() && $this->lost !== self::RELEASED) {
            $this->lost ??= $this->connection->loss($this->hold);
            $this->lost === null || $this->connection->send('release', ['hold' => $this->hold]); // the server keeps the other keys until then
            $this->look();
            $this->lost = self::RELEASED;
            $this->connection->request('release', ['hold' => $this->hold]);
        }
    }

    /** Throws if a loss is known without asking. */
    private function look(): void
    {
        $this->lost ??= $this->connection->loss($this->hold);
        $this->lost === null || throw new LockLost('the lock ' . implode(', ', $this->keys) . " is not held any more: $this->lost", 76, $this->keys[0]);
    }

    /** @param array{remaining: ?float, ...} $result of a request that was sent then; null if nothing expires, as of files */
    private function tell(array $result, float $sent): void
    {
        $told = $result['remaining'] ?? INF;
        $this->told = [$sent + $told, $sent + $told + microtime(true) - Connection::now(), $told];
    }

    /** What is left of the time that was told. The monotonic clock stands still while a machine is suspended, so the other counts too. */
    private function left(): float
    {
        return min($this->told[0] - Connection::now(), $this->told[1] - microtime(true));
    }

    public function __destruct()
    {
        if ($this->lost !== self::RELEASED && $this->connection->mine()) {
            $cause = $this->lost === null ? $this->connection->loss($this->hold) : null;
            $cause === null || error_log('fencelock: the lock ' . implode(', ', $this->keys) . " was lost before its release: $cause");
            $this->connection->send('release', ['hold' => $this->hold]);
        }
    }

    private function __clone() {}
}
