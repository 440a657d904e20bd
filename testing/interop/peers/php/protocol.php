<?php
// A lock library with the protocol of all peers; see testing/interop/src/lib.rs.
declare(strict_types=1);

interface Lock
{
    /** One attempt. */
    public function attempt(string $key, int $ttlMs): bool;

    /** Releases the last lock; returns whether this process still held it. */
    public function release(): bool;
}

/** Retries until the time limit, with a short random pause in between. */
function wait_for(Lock $lock, string $key, int $ttlMs, int $waitMs): bool
{
    $end = hrtime(true) + $waitMs * 1_000_000;
    while (!$lock->attempt($key, $ttlMs)) {
        if (hrtime(true) >= $end) {
            return false;
        }
        usleep(random_int(1_000, 5_000));
    }
    return true;
}

/** Reads a number, waits, and writes the next one: only a lock prevents lost updates. */
function count_up(Lock $lock, string $key, int $ttlMs, string $file, int $times): void
{
    for ($done = 0; $done < $times; $done++) {
        if (!wait_for($lock, $key, $ttlMs, 60_000)) {
            throw new RuntimeException("no turn within a minute, after $done");
        }
        $seen = (int) file_get_contents($file);
        usleep(500);
        file_put_contents($file, (string) ($seen + 1));
        if (!$lock->release()) {
            throw new RuntimeException("lost while counting, after $done");
        }
    }
}

/** @param Redis[] $servers */
function answer(Lock $lock, array $servers, array $words): string
{
    switch ($words[0]) {
        case 'try':
            return $lock->attempt($words[1], (int) $words[2]) ? 'held' : 'busy';
        case 'lock':
            return wait_for($lock, $words[1], (int) $words[2], (int) $words[3]) ? 'held' : 'busy';
        case 'unlock':
            return $lock->release() ? 'freed' : 'lost';
        case 'delete':
            foreach ($servers as $server) {
                $server->del($words[1]);
            }
            return 'deleted';
        case 'count':
            count_up($lock, $words[1], (int) $words[2], $words[3], (int) $words[4]);
            return 'counted';
        default:
            return "error no such word: $words[0]";
    }
}

/** @param Redis[] $servers */
function serve(Lock $lock, array $servers, string $version): void
{
    echo "ready $version\n";
    while (($line = fgets(STDIN)) !== false) {
        try {
            echo answer($lock, $servers, explode(' ', trim($line))), "\n";
        } catch (Throwable $failure) {
            echo 'error ', strtr($failure->getMessage(), "\n", ' '), "\n";
        }
    }
}

/** @return Redis[] one connection for each port on the command line, from the given argument on */
function connect(array $ports): array
{
    return array_map(static function (string $port): Redis {
        $redis = new Redis();
        $redis->connect('127.0.0.1', (int) $port, 5.0);
        return $redis;
    }, array_values($ports));
}
