<?php
declare(strict_types=1);

/** Redlock: a majority of independent servers, one value on all of them, and a validity reduced by the time of the requests. */
final class Redlock implements Lock
{
    private string $key = '';
    private string $value = '';

    /** @param Redis[] $servers */
    public function __construct(private array $servers)
    {
    }

    public function attempt(string $key, int $ttlMs): bool
    {
        [$this->key, $this->value] = [$key, bin2hex(random_bytes(16))];
        $begun = hrtime(true);
        $votes = 0;
        foreach ($this->servers as $server) {
            $votes += $server->set($key, $this->value, ['nx', 'px' => $ttlMs]) === true ? 1 : 0;
        }
        $spent = (hrtime(true) - $begun) / 1_000_000;
        $validity = $ttlMs - $spent - ($ttlMs * 0.01 + 2);
        if ($this->majority($votes) && $validity > 0) {
            return true;
        }
        $this->release();
        return false;
    }

    public function release(): bool
    {
        $freed = 0;
        foreach ($this->servers as $server) {
            $freed += CompareAndDelete::run($server, $this->key, $this->value) ? 1 : 0;
        }
        return $this->majority($freed);
    }

    private function majority(int $votes): bool
    {
        return 2 * $votes > count($this->servers);
    }
}
