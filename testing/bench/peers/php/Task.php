<?php
declare(strict_types=1);

/** Acquires and releases locks until the end. */
final class Task
{
    private int $grants = 0;
    private int $errors = 0;
    private ?string $firstError = null;
    private bool $soldOut = false;
    /** @var array<int, int> the number of waits by duration */
    private array $waits = [];

    /** @param Closure(string): Closure $acquire waits like the library does; the result releases the lock */
    public function __construct(private array $job, private Redis $server, private Closure $acquire)
    {
    }

    public function run(): array
    {
        $counted = hrtime(true) + $this->job['warm_up_ms'] * 1_000_000;
        $end = $counted + $this->job['span_ms'] * 1_000_000;
        while (hrtime(true) < $end && !$this->soldOut) {
            try {
                $this->turn($counted, $end);
            } catch (Throwable $failure) {
                $this->errors++;
                $this->firstError ??= $failure->getMessage();
                usleep(10_000);
            }
        }
        ksort($this->waits);
        $waits = array_map(null, array_keys($this->waits), array_values($this->waits));
        return [
            'tasks' => [['grants' => $this->grants, 'refused' => 0]],
            'waits' => $waits,
            'errors' => $this->errors,
            'first_error' => $this->firstError,
        ];
    }

    private function turn(int $counted, int $end): void
    {
        $asked = hrtime(true);
        // A waiting task continues after the end: no other task starts again, so it soon acquires the lock.
        $key = $this->key();
        $release = ($this->acquire)($key);
        $granted = hrtime(true);
        if ($this->job['workload'] === 'flash-sale' && $granted <= $end) {
            $this->soldOut = !$this->sell($key);
        }
        if ($asked >= $counted && $granted <= $end) {
            $wait = self::rounded(intdiv($granted - $asked, 1_000));
            $this->waits[$wait] = ($this->waits[$wait] ?? 0) + 1;
            $this->grants++;
        }
        $release();
    }

    private function key(): string
    {
        return match ($this->job['workload']) {
            'uncontended' => "{$this->job['key']}:{$this->job['process']}:0",
            'many-keys' => $this->job['key'] . ':' . random_int(0, $this->job['keys'] - 1),
            default => $this->job['key'],
        };
    }

    /** Returns whether an item was left. Only the lock prevents other sales between reading and writing. */
    private function sell(string $key): bool
    {
        $stock = (int) $this->server->get("$key:stock");
        if ($stock > 0) {
            $this->server->set("$key:stock", (string) ($stock - 1));
            $this->server->rPush("$key:sold", (string) $stock);
        }
        return $stock > 0;
    }

    /** Rounds to three digits. */
    private static function rounded(int $micros): int
    {
        $unit = 10 ** max(strlen((string) $micros) - 3, 0);
        return intdiv($micros + intdiv($unit, 2), $unit) * $unit;
    }
}
