<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Client;
use Fencelock\Held;
use Fencelock\LockBusy;
use Fencelock\LockLost;

/** A wait that ends early leaves nothing behind, and those who wait side by side exclude each other. */
final class WaitTest extends ServerTestCase
{
    protected function tearDown(): void
    {
        pcntl_alarm(0);
        pcntl_async_signals(false);
        parent::tearDown();
    }

    /** Throws in the middle of what runs, after a second. */
    private function alarm(): void
    {
        pcntl_async_signals(true);
        pcntl_signal(SIGALRM, fn () => throw new \DomainException('too long'));
        pcntl_alarm(1);
    }

    public function test_a_wait_that_an_exception_ends_is_withdrawn(): void
    {
        $this->server($this->store());
        $client = Client::connect("$this->dir/server.sock");
        $held = $client->lock('k')->acquire();
        $this->alarm();
        $this->thrown(\DomainException::class, fn () => $client->lock('k')->acquire());
        $held->check();
        $this->assertSame(0, (int) $client->status('k')['waiters']);
        $held->release();
        // The same session would have been granted the key.
        $this->assertNotNull(Client::connect("$this->dir/server.sock")->lock('k')->try());
    }

    /** @return array<string, array{string, string}> */
    public function lateGrants(): array
    {
        $grant = '{"jsonrpc":"2.0","id":2,"result":{"hold":7,"key":"k","token":1,"remaining":30}}';
        return [
            'granted before the cancel is read' => ["read lock; read cancel; echo '$grant'; read release; read remaining", '{"hold":7}'],
            'granted long after' => ["read lock; read cancel; sleep 2; echo '$grant'; read release; read remaining", '{"hold":7}'],
            'cancelled' => ['read lock; read cancel; echo \'{"jsonrpc":"2.0","id":2,"error":{"code":-32800,"message":"cancelled"}}\'; read release; read remaining', ''],
        ];
    }

    /** @dataProvider lateGrants */
    public function test_a_grant_that_comes_too_late_is_given_back(string $server, string $released): void
    {
        file_put_contents("$this->dir/program", "#!/bin/bash\ntee $this->dir/sent | {\nread hello\n"
            . 'echo \'{"jsonrpc":"2.0","id":1,"result":{"protocol":1,"limits":{"line":65536}}}\'' . "\n$server\n}\n");
        chmod("$this->dir/program", 0700);
        $script = $this->script('
            pcntl_async_signals(true);
            pcntl_signal(SIGALRM, fn () => throw new DomainException("too long"));
            pcntl_alarm(1);
            $client = Client::connect("file:$dir");
            try {
                $client->lock("k")->acquire();
            } catch (DomainException $e) {
                echo $e->getMessage(), "\n";
            }
            // Whoever uses the client next reads what has come meanwhile.
            usleep(2500000);
            $client->connection()->lives();', ['FENCELOCK_PROGRAM' => "$this->dir/program"]);
        $this->assertSame('too long', $script->line());
        $this->assertSame(0, $script->end(), $script->errors());
        $requests = array_map(fn (string $line) => json_decode($line, true), file("$this->dir/sent"));
        $this->assertSame(['id' => $requests[1]['id']], $requests[2]['params']);
        $this->assertSame(array_merge(['hello', 'lock', 'cancel'], $released === '' ? [] : ['release']), array_column($requests, 'method'));
        $this->assertSame($released, isset($requests[3]) ? json_encode($requests[3]['params']) : '');
    }

    /** Runs fibers in turns, each until it is idle, and returns when all have ended. */
    private function turns(\Fiber ...$fibers): void
    {
        for ($until = microtime(true) + 30; $fibers !== [] && microtime(true) < $until; usleep(1000)) {
            foreach ($fibers as $fiber) {
                $fiber->isStarted() ? $fiber->resume() : $fiber->start();
            }
            $fibers = array_filter($fibers, fn (\Fiber $fiber) => !$fiber->isTerminated());
        }
        $this->assertSame([], $fibers, 'fibers wait for each other');
    }

    public function test_fibers_of_one_client_exclude_each_other(): void
    {
        $this->server($this->store());
        $client = Client::connect("$this->dir/server.sock", fn () => \Fiber::getCurrent() ? \Fiber::suspend() : usleep(1000));
        [$inside, $most, $done] = [0, 0, 0];
        $work = function () use ($client, &$inside, &$most, &$done): void {
            for ($i = 0; $i < 5; $i++) {
                $client->lock('k')->wait(20)->run(function (Held $held) use (&$inside, &$most, &$done): void {
                    $most = max($most, ++$inside);
                    \Fiber::suspend();
                    $held->remaining();
                    $inside--;
                    $done++;
                });
            }
        };
        $this->turns(new \Fiber($work), new \Fiber($work), new \Fiber($work), new \Fiber($work));
        $this->assertSame([1, 20], [$most, $done]);
    }

    public function test_coroutines_of_swoole_that_have_a_client_each_exclude_each_other(): void
    {
        extension_loaded('swoole') || $this->markTestSkipped('there is no ext-swoole, which Debian does not have');
        $this->server($this->store());
        foreach (["$this->dir/server.sock", $this->store()] as $to) {
            $script = $this->script('$to = ' . var_export($to, true) . <<<'PHP'
            ;
            use Swoole\Coroutine;
            Coroutine::set(['hook_flags' => SWOOLE_HOOK_ALL, 'log_level' => SWOOLE_LOG_ERROR]);
            Coroutine\run(function () use ($to) {
                [$inside, $most, $done] = [0, 0, 0];
                Coroutine\parallel(4, function () use ($to, &$inside, &$most, &$done) {
                    $client = Client::connect($to);
                    for ($i = 0; $i < 5; $i++) {
                        $client->lock('k')->wait(20)->run(function (Held $held) use (&$inside, &$most, &$done) {
                            $most = max($most, ++$inside);
                            Coroutine::sleep(0.01);
                            $held->remaining();
                            $inside--;
                            $done++;
                        });
                    }
                });
                echo "$most at once, $done in all\n";
            });
            PHP);
            $this->assertSame('1 at once, 20 in all', $script->line());
            $this->assertSame(0, $script->end(), $script->errors());
        }
    }

    public function test_a_fiber_that_is_destroyed_leaves_the_queue(): void
    {
        $this->server($this->store());
        $client = Client::connect("$this->dir/server.sock", fn () => \Fiber::getCurrent() ? \Fiber::suspend() : usleep(1000));
        $held = $client->lock('k')->acquire();
        $fiber = new \Fiber(fn () => $client->lock('k')->acquire());
        $fiber->start();
        $this->until(fn () => (int) $client->status('k')['waiters'] === 1);
        unset($fiber);
        gc_collect_cycles();
        $this->assertSame(0, (int) $client->status('k')['waiters']);
        $held->release();
        $this->assertNotNull($client->lock('k')->try());
    }

    public function test_a_grant_that_is_read_when_it_is_over_is_no_lock(): void
    {
        $this->server($this->store());
        [$client, $other] = [Client::connect("$this->dir/server.sock", fn () => \Fiber::getCurrent() ? \Fiber::suspend() : usleep(1000)), Client::connect("$this->dir/server.sock")];
        $fiber = new \Fiber(fn () => $client->lock('k')->maxHold(0.2)->acquire());
        $fiber->start();
        $this->until(fn () => $other->status('k')['held']);
        $this->until(fn () => !$other->status('k')['held']);
        $this->expectException(LockLost::class);
        $this->turns($fiber);
    }

    /** @dataProvider stores */
    public function test_processes_count_to_the_right_number_though_some_are_killed(string $kind): void
    {
        $this->server($this->store($kind));
        file_put_contents("$this->dir/count", '0');
        $body = '
            for ($i = 0; $i < 40; $i++) {
                $lock = Client::connect("$dir/server.sock")->lock("k")->wait(60);
                $lock->run(function (Held $held) use ($dir, $i) {
                    $count = (int) file_get_contents("$dir/count");
                    usleep(random_int(0, 300));
                    %s
                    file_put_contents("$dir/count", (string) ($count + 1));
                });
            }';
        $workers = array_map(fn () => $this->script(sprintf($body, '')), range(1, 6));
        $killed = $this->script(sprintf($body, 'if ($i === 20) { posix_kill(getmypid(), SIGKILL); }'));
        $ended = $this->script(sprintf($body, 'if ($i === 20) { exit(0); }'));
        foreach ($workers as $worker) {
            $this->assertSame(0, $worker->end(), $worker->errors());
        }
        $this->assertSame(137, $killed->end());
        $this->assertSame(0, $ended->end());
        $this->assertSame((string) (6 * 40 + 2 * 20), file_get_contents("$this->dir/count"));
    }

    public function test_requests_of_fpm_count_to_the_right_number(): void
    {
        $this->server($this->store());
        file_put_contents("$this->dir/count", '0');
        file_put_contents("$this->dir/page.php", '<?php require ' . var_export(__DIR__ . '/autoload.php', true) . ';
            $dir = __DIR__;
            Fencelock\Client::connect()->lock("k")->wait(30)->run(function () use ($dir) {
                $count = (int) file_get_contents("$dir/count");
                usleep(1000);
                file_put_contents("$dir/count", (string) ($count + 1));
                echo "counted";
                if (random_int(0, 1) === 0) {
                    exit;
                }
                if (random_int(0, 1) === 0) {
                    undefined_function();
                }
            });');
        $pool = fn (string $name, string $more) => "[$name]\nlisten = $this->dir/$name.sock\npm = static\npm.max_children = 4\nuser = www-data\nlisten.mode = 0666\n$more\n";
        $user = posix_getuid() === 0 ? posix_getpwuid(0)['name'] : '';
        file_put_contents("$this->dir/fpm.conf", "[global]\nerror_log = $this->dir/fpm.log\ndaemonize = no\n"
            . str_replace('www-data', $user, $pool('named', "env[FENCELOCK_SOCKET] = unix:$this->dir/server.sock") . $pool('unnamed', '')));
        $fpm = $this->start([glob('/usr/sbin/php-fpm*')[0], '-R', '-F', '-n', '-d', 'extension=sockets', '-y', "$this->dir/fpm.conf"], ['FENCELOCK_SOCKET' => 'cleared']);
        try {
            $this->until(fn () => file_exists("$this->dir/unnamed.sock"));
            $page = ['SCRIPT_FILENAME' => "$this->dir/page.php", 'REQUEST_METHOD' => 'GET'];
            $request = fn (string $pool) => $this->start(['cgi-fcgi', '-bind', '-connect', "$this->dir/$pool.sock"], $page);
            $requests = array_map(fn () => $request('named'), range(1, 40));
            foreach ($requests as $one) {
                $this->assertSame(0, $one->end());
            }
            $this->assertSame('40', file_get_contents("$this->dir/count"), (string) @file_get_contents("$this->dir/fpm.log"));
            for ($refused = $request('unnamed'), $line = ''; !str_contains($line, 'UsageError');) {
                $line = $refused->line();
            }
            $this->assertStringContainsString('env[FENCELOCK_SOCKET]=unix:/run/fencelock.sock', $line);
        } finally { // a master that is killed leaves its workers
            $fpm->signal(SIGTERM);
            $fpm->end();
        }
    }
}
