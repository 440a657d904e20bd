<?php

declare(strict_types=1);

namespace Fencelock\Tests;

/** A process that a test has started, and ends. */
final class Process
{
    private const DEADLINE = 30;

    public readonly int $pid;
    public string $errors = '';
    /** @var resource */
    private $process;
    /** @var array<int, resource> */
    private array $pipes = [];
    private ?int $code = null;

    /**
     * @param list<string> $command
     * @param array<string, string> $env added to that of the test
     */
    public function __construct(array $command, array $env = [])
    {
        $errors = tmpfile();
        $this->process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], $errors], $this->pipes, null, $env + getenv());
        $this->pid = proc_get_status($this->process)['pid'];
        $this->pipes[2] = $errors;
    }

    public function tell(string $line): void
    {
        fwrite($this->pipes[0], "$line\n");
    }

    /** The next line of its output, or an exception with its errors. */
    public function line(): string
    {
        [$read, $write, $except] = [[$this->pipes[1]], [], []];
        $line = stream_select($read, $write, $except, self::DEADLINE) ? fgets($this->pipes[1]) : false;
        return $line === false ? throw new \RuntimeException('no output; errors: ' . $this->errors()) : rtrim($line, "\n");
    }

    public function errors(): string
    {
        rewind($this->pipes[2]);
        return (string) stream_get_contents($this->pipes[2]);
    }

    public function signal(int $signal): void
    {
        posix_kill($this->pid, $signal);
    }

    /** Waits for its end, and returns its exit code: 128 and the signal, if one has ended it. */
    public function end(): int
    {
        for ($until = microtime(true) + self::DEADLINE; $this->code === null && microtime(true) < $until; usleep(2000)) {
            $status = proc_get_status($this->process);
            $this->code = $status['running'] ? null : ($status['signaled'] ? 128 + $status['termsig'] : $status['exitcode']);
        }
        return $this->code ?? throw new \RuntimeException("process $this->pid does not end; errors: " . $this->errors());
    }

    public function kill(): void
    {
        if ($this->code === null) {
            $this->signal(SIGKILL);
            $this->end();
        }
    }
}
