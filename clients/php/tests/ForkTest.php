<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Client;

/** What a forked child may do with the locks of its parent: nothing. */
final class ForkTest extends ServerTestCase
{
    /** @return array<string, array{string}> */
    public function children(): array
    {
        return [
            'ends' => [''],
            'is killed' => ['posix_kill(getmypid(), SIGKILL);'],
            'runs out of memory' => ['$x = str_repeat("x", 1 << 30);'],
            'releases' => ['$held->release();'],
            'forgets all' => ['unset($held, $client); gc_collect_cycles();'],
            'closes' => ['$client->close(); unset($held, $client);'],
            'asks' => ['foreach (["check", "remaining"] as $ask) { try { $held->$ask(); echo "$ask says yes\n"; } catch (LockLost $e) { } }'],
            'is in the work' => ['throw new Exception("x");'],
            'connects' => ['$own = Client::connect($to)->lock("own")->acquire(); unset($own);'],
            'waits for the lock of its parent' => ['try { $client->lock("k")->wait(0.2)->acquire(); echo "taken twice\n"; } catch (LockBusy) { }'],
        ];
    }

    /** A script whose forked child does something while the parent holds `k`. */
    private function fork(string $to, string $child, array $env = []): Process
    {
        return $this->script('
            $to = ' . var_export($to, true) . ';
            $client = Client::connect($to);
            $held = $client->lock("k")->acquire();
            if (pcntl_fork() === 0) {
                ini_set("display_errors", "0");
                ini_set("log_errors", "0");
                (function () use (&$client, &$held, $to) { ' . $child . ' })();
                exit;
            }
            pcntl_wait($status);
            $held->check();
            $remaining = $held->remaining();
            echo "held\n";
            fgets(STDIN);
            $held->release();
            echo "released\n";', $env);
    }

    /** @dataProvider children */
    public function test_a_forked_child_leaves_the_lock_to_its_parent(string $child): void
    {
        $this->server($this->store());
        foreach (["$this->dir/server.sock", $this->store()] as $to) {
            $script = $this->fork($to, $child);
            $this->assertSame('held', $script->line());
            $lock = Client::connect("$this->dir/server.sock")->lock('k');
            $this->assertNull($lock->try());
            $script->tell('release');
            $this->assertSame('released', $script->line());
            $this->assertSame(0, $script->end(), $script->errors());
            $this->assertNotNull($lock->wait(5)->acquire());
        }
    }

    /** @dataProvider children */
    public function test_a_forked_child_sends_nothing_for_its_parent(string $child): void
    {
        file_put_contents("$this->dir/program", "#!/bin/sh\ntee -a $this->dir/\$\$.sent | " . getenv('FENCELOCK_PROGRAM') . " \"\$@\"\n");
        chmod("$this->dir/program", 0700);
        $script = $this->fork("file:$this->dir/locks", $child, ['FENCELOCK_PROGRAM' => "$this->dir/program"]);
        $this->assertSame('held', $script->line());
        $script->tell('release');
        $this->assertSame('released', $script->line());
        $this->assertSame(0, $script->end(), $script->errors());
        foreach (glob("$this->dir/*.sent") as $sent) {
            $methods = array_map(fn (string $line) => json_decode($line, true)['method'], file($sent));
            if (in_array('remaining', $methods, true)) {
                $this->assertSame(['hello', 'lock', 'remaining', 'release'], $methods);
                return;
            }
        }
        $this->fail('the requests of the parent were not found');
    }

    public function test_a_forked_child_starts_a_server_of_its_own(): void
    {
        $script = $this->script('
            $client = Client::connect("file:$dir/locks");
            $held = $client->lock("k")->acquire();
            $children = fn () => (string) @file_get_contents("/proc/self/task/" . getmypid() . "/children");
            if (pcntl_fork() === 0) {
                echo $client->lock("k")->try() === null && $client->lock("j")->try() !== null ? "excluded " : "taken ", count(explode(" ", trim($children()))), "\n";
                exit;
            }
            pcntl_wait($status);
            $held->check();
            echo count(explode(" ", trim($children()))), "\n";');
        $this->assertSame('excluded 1', $script->line());
        $this->assertSame('1', $script->line());
        $this->assertSame(0, $script->end(), $script->errors());
    }

    public function test_the_lock_of_a_dead_parent_ends_although_its_child_lives(): void
    {
        $this->server($this->store());
        foreach (["$this->dir/server.sock", $this->store()] as $to) {
            $script = $this->script('
                $held = Client::connect(' . var_export($to, true) . ')->lock("k")->acquire();
                $child = pcntl_fork();
                if ($child === 0) {
                    sleep(60);
                    exit;
                }
                echo "$child\n";
                sleep(60);');
            $child = (int) $script->line();
            $script->signal(SIGKILL);
            $script->end();
            try {
                $this->assertSame(1, Client::connect("$this->dir/server.sock")->lock('k')->wait(10)->run(fn () => 1));
            } finally {
                posix_kill($child, SIGKILL);
            }
        }
    }
}
