<?php

declare(strict_types=1);

namespace Fencelock;

/**
 * A client of `fencelock serve`, which holds the locks of this process and renews them.
 *
 * A lock belongs to the connection, and the connection to the process. It ends with `release`, with the process, however it ends, and
 * under PHP-FPM with the request. After a fork, and after the server was started again, the next lock connects anew.
 */
final class Client
{
    private ?Connection $connection = null;

    private function __construct(private readonly ?string $socket, private readonly ?string $url, private readonly \Closure $idle) {}

    /**
     * Connects to the server at a socket (`unix:/run/fencelock.sock` or `/run/fencelock.sock`). Any other `$to` is the URL of a store,
     * as `redis://HOST` or `file:DIR`, for a server that is started as a child of this process, once. Without `$to`, the environment
     * variable FENCELOCK_SOCKET names a socket; if it is not set, a child is started with the settings of fencelock.
     *
     * `$idle` waits until a stream can be read, for at most so many seconds, in place of `stream_select`. An event loop suspends the fiber
     * in it, so that others run meanwhile.
     *
     * @param ?callable(resource, float): void $idle
     * @throws UsageError if an address is empty, there is no program to start, or a web server is not told a socket
     * @throws Unreachable if nobody listens at the socket, or the server has ended
     */
    public static function connect(?string $to = null, ?callable $idle = null): self
    {
        $named = $to ?? getenv('FENCELOCK_SOCKET');
        $named !== '' || throw new UsageError(($to === null ? 'FENCELOCK_SOCKET' : 'the address') . ' is set, but empty: name a socket as unix:/run/fencelock.sock, or leave it out', 64);
        $socket = preg_match('/^(?:unix:(?:\/\/)?|(?=\/))(.+)/', (string) $named, $path) ? $path[1] : null;
        $socket !== null || $to !== null || $named === false || throw new UsageError("FENCELOCK_SOCKET is `$named`: name a socket as unix:/run/fencelock.sock", 64);
        $socket !== null || !in_array(PHP_SAPI, ['fpm-fcgi', 'cgi-fcgi', 'apache2handler', 'litespeed'], true)
            || throw new UsageError('no socket is named, and ' . PHP_SAPI . ' would start a server for each request: start one with `fencelock serve '
                . '--listen unix:/run/fencelock.sock`, and name it, in the pool of PHP-FPM by env[FENCELOCK_SOCKET]=unix:/run/fencelock.sock, in Apache by SetEnv', 64);
        $client = new self($socket, $to, ($idle ?? Connection::select(...))(...));
        $client->connection();
        return $client;
    }

    /** A lock of a key, to be taken. It is exclusive unless {@see Lock::shared}. */
    public function lock(string $key): Lock
    {
        return new Lock($this, ['key' => $key]);
    }

    /** A lock of several keys, of which all or none are taken. @param list<string> $keys */
    public function lockAll(array $keys): Lock
    {
        return new Lock($this, ['keys' => array_values($keys)]);
    }

    /** A permit of a semaphore that has `$limit` of them; several with {@see Lock::permits}. All clients must name the same limit. */
    public function semaphore(string $key, int $limit): Lock
    {
        return new Lock($this, ['key' => $key, 'limit' => $limit]);
    }

    /** One of `$count` numbered slots, each with its own tokens. {@see Held::$slot} is the number. */
    public function slots(string $key, int $count): Lock
    {
        return new Lock($this, ['key' => $key, 'slots' => $count]);
    }

    /**
     * Who holds a key, and who waits, as `fencelock status --json` prints it.
     *
     * @return array<string, mixed>
     * @throws FencelockException
     */
    public function status(string $key): array
    {
        return $this->connection()->request('status', ['key' => $key]);
    }

    /**
     * The locks that are held, as `fencelock list --json` prints them.
     *
     * @return list<array<string, mixed>>
     * @throws FencelockException
     */
    public function list(string $prefix = ''): array
    {
        return $this->connection()->request('list', ['prefix' => $prefix])['locks'] ?? [];
    }

    /** Leaves the connection. It ends with its last lock; a child is kept for the process. A later call connects again. */
    public function close(): void
    {
        $this->connection = null;
    }

    /** @internal */
    public function connection(): Connection
    {
        $this->connection?->lives() || $this->connection = $this->socket === null ? Connection::child($this->url) : Connection::socket($this->socket);
        $this->connection->idle = $this->idle;
        return $this->connection;
    }
}
