<?php
declare(strict_types=1);

/** The recommended lock on one server: SET NX with a TTL and a random value in one step, released by compare-and-delete. */
final class WaySix implements Lock
{
    private string $key = '';
    private string $password = '';

    public function __construct(private Redis $server)
    {
    }

    public function attempt(string $key, int $ttlMs): bool
    {
        $password = bin2hex(random_bytes(16));
        if ($this->server->set($key, $password, ['nx', 'px' => $ttlMs]) !== true) {
            return false;
        }
        [$this->key, $this->password] = [$key, $password];
        return true;
    }

    public function release(): bool
    {
        return CompareAndDelete::run($this->server, $this->key, $this->password);
    }
}
