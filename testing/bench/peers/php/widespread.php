<?php
// Widely copied lock code, with its usual pauses.
declare(strict_types=1);

/** SET NX PX with a random value, released by compare-and-delete; polls every 5 ms. */
function way_six(Redis $server, int $ttlMs): Closure
{
    return static function (string $key) use ($server, $ttlMs): Closure {
        $lock = new WaySix($server);
        while (!$lock->attempt($key, $ttlMs)) {
            usleep(5_000);
        }
        return release_of($lock);
    };
}

/** Redlock on one server; polls after a random pause of 100 to 200 ms. */
function redlock(Redis $server, int $ttlMs): Closure
{
    return static function (string $key) use ($server, $ttlMs): Closure {
        $lock = new Redlock([$server]);
        while (!$lock->attempt($key, $ttlMs)) {
            usleep(random_int(100, 200) * 1_000);
        }
        return release_of($lock);
    };
}

function release_of(Lock $lock): Closure
{
    return static function () use ($lock): void {
        if (!$lock->release()) {
            throw new RuntimeException('the lock was lost');
        }
    };
}
