<?php
declare(strict_types=1);

/** Deletes the key on one server if it still has the value of this process. */
final class CompareAndDelete
{
    private const SCRIPT = <<<'LUA'
        local value = redis.call('GET', KEYS[1])
        if not value then return -1 end
        if value ~= ARGV[1] then return 0 end
        return redis.call('DEL', KEYS[1])
        LUA;

    /** Returns whether this process held the key. A failed script throws. */
    public static function run(Redis $server, string $key, string $value): bool
    {
        $server->clearLastError();
        $answer = $server->eval(self::SCRIPT, [$key, $value], 1);
        if (!is_int($answer)) {
            throw new RuntimeException('could not tell: ' . $server->getLastError());
        }
        return $answer === 1;
    }
}
