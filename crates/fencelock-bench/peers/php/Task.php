<?php
declare(strict_types=1);

/** Takes and gives back locks until the end. */
final class Task
{
    private int $grants = 0;
    private int $errors = 0;
    private ?string $firstError = null;
    /** @var array<int, int> how often each wait was seen */
    private array $waits = [];

    /** @param Closure(string): Closure $acquire waits in the library's own way; what it gives releases the lock */
    public function __construct(private array $job, private Closure $acquire)
    {
    }

    public function run(): array
    {
        $counted = hrtime(true) + $this->job['warm_up_ms'] * 1_000_000;
        $end = $counted + $this->job['span_ms'] * 1_000_000;
        while (hrtime(true) < $end) {
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
        // Who waits at the end waits on: then nobody begins anew, so its turn is near.
        $release = ($this->acquire)($this->key());
        $granted = hrtime(true);
        if ($asked >= $counted && $granted <= $end) {
            if (isset($this->job['file'])) {
                self::countUp($this->job['file']);
            }
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

    /** Reads a number, takes its time, writes the next one: only a lock keeps others from doing so meanwhile. */
    private static function countUp(string $file): void
    {
        $seen = (int) file_get_contents($file);
        usleep(500);
        file_put_contents($file, (string) ($seen + 1));
    }

    /** To three digits. */
    private static function rounded(int $micros): int
    {
        $unit = 10 ** max(strlen((string) $micros) - 3, 0);
        return intdiv($micros + intdiv($unit, 2), $unit) * $unit;
    }
}
