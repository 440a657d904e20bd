<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\LockLost;
use PHPUnit\Framework\TestCase;

/** A test with servers of its own, which end with it. */
abstract class ServerTestCase extends TestCase
{
    protected string $dir;
    /** @var list<Process> */
    private array $processes = [];
    private ?string $redis = null;

    protected function setUp(): void
    {
        $this->dir = sys_get_temp_dir() . '/fencelock-php-' . getmypid() . '-' . bin2hex(random_bytes(4));
        mkdir("$this->dir/locks", 0700, true);
    }

    protected function tearDown(): void
    {
        array_map(fn (Process $process) => $process->kill(), array_reverse($this->processes));
        exec('rm -rf ' . escapeshellarg($this->dir));
    }

    /** @return array<string, array{string}> */
    public function stores(): array
    {
        return ['files' => ['file'], 'Redis' => ['redis']];
    }

    /** The URL of a store that is empty. */
    protected function store(string $kind = 'redis'): string
    {
        if ($kind === 'file') {
            return "file:$this->dir/locks";
        }
        if ($this->redis === null) {
            $this->redis = "$this->dir/redis.sock";
            $this->start(['redis-server', '--port', '0', '--unixsocket', $this->redis, '--save', '', '--appendonly', 'no', '--dir', $this->dir]);
            $this->until(fn () => @stream_socket_client("unix://$this->redis"));
        }
        return "redis+unix://$this->redis";
    }

    protected function emptyRedis(string $command = 'FLUSHALL'): void
    {
        $redis = stream_socket_client("unix://$this->redis");
        fwrite($redis, "$command\r\n");
        $this->assertContains(fgets($redis), ["+OK\r\n", ":1\r\n"]);
    }

    /** A server that listens at `$this->dir/server.sock`. */
    protected function server(string $url, string ...$options): Process
    {
        $process = $this->start([getenv('FENCELOCK_PROGRAM'), 'serve', '--listen', "unix:$this->dir/server.sock", '--url', $url, ...$options]);
        $this->until(fn () => @stream_socket_client("unix://$this->dir/server.sock"));
        return $process;
    }

    /**
     * A script of PHP in a process of its own, with the classes of the client, and `$dir`.
     *
     * @param array<string, string> $env
     */
    protected function script(string $code, array $env = []): Process
    {
        $file = "$this->dir/" . bin2hex(random_bytes(4)) . '.php';
        $head = '<?php require ' . var_export(__DIR__ . '/autoload.php', true) . '; use Fencelock\{Client, Held, LockBusy, LockLost, Unreachable}; $dir = ';
        file_put_contents($file, $head . var_export($this->dir, true) . ";\n$code\n");
        return $this->start([PHP_BINARY, '-d', 'display_errors=stderr', '-d', 'memory_limit=64M', $file], $env);
    }

    /**
     * @param list<string> $command
     * @param array<string, string> $env
     */
    protected function start(array $command, array $env = []): Process
    {
        return $this->processes[] = new Process($command, $env);
    }

    /** Waits until something is the case. */
    protected function until(callable $is): mixed
    {
        for ($until = microtime(true) + 30; microtime(true) < $until; usleep(5000)) {
            if ($result = $is()) {
                return $result;
            }
        }
        $this->fail('waited 30 s in vain');
    }

    /** What a call throws, which must be of this class. @template T of \Throwable @param class-string<T> $class @return T */
    protected function thrown(string $class, callable $call): \Throwable
    {
        try {
            $call();
        } catch (\Throwable $e) {
            $this->assertInstanceOf($class, $e, (string) $e);
            return $e;
        }
        $this->fail("$class was not thrown");
    }

    /** Asks until the answer is that the lock is lost. */
    protected function loss(callable $ask): LockLost
    {
        return $this->until(function () use ($ask) {
            try {
                $ask();
            } catch (LockLost $e) {
                return $e;
            }
        });
    }
}
