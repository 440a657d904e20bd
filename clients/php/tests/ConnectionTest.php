<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Client;
use Fencelock\FencelockException;
use Fencelock\Unreachable;
use Fencelock\UsageError;

/** How a client finds its server, and what ends a session. */
final class ConnectionTest extends ServerTestCase
{
    private const HELLO = '{"jsonrpc":"2.0","id":1,"result":{"protocol":%d,"version":"9","backend":"file","shared":true,"permits":true,"limits":{"line":65536}}}';

    protected function tearDown(): void
    {
        putenv('FENCELOCK_SOCKET');
        parent::tearDown();
    }

    /** A program that is started instead of fencelock. */
    private function program(string $script): string
    {
        $program = "$this->dir/program-" . bin2hex(random_bytes(4));
        file_put_contents($program, "#!/bin/sh\n$script\n");
        chmod($program, 0700);
        return $program;
    }

    public function test_a_socket_is_named_by_the_argument_or_the_environment(): void
    {
        $this->server($this->store());
        $path = "$this->dir/server.sock";
        $held = Client::connect($path)->lock('k')->acquire();
        $this->assertNull(Client::connect("unix:$path")->lock('k')->try());
        $this->assertNull(Client::connect("unix://$path")->lock('k')->try());
        chdir($this->dir);
        $this->assertNull(Client::connect('unix:server.sock')->lock('k')->try());
        foreach ([$path, "unix:$path"] as $named) {
            putenv("FENCELOCK_SOCKET=$named");
            $this->assertNull(Client::connect()->lock('k')->try());
        }
        $this->assertStringContainsString('empty', $this->thrown(UsageError::class, fn () => Client::connect(''))->getMessage());
        putenv('FENCELOCK_SOCKET=');
        $this->assertStringContainsString('FENCELOCK_SOCKET is set, but empty', $this->thrown(UsageError::class, fn () => Client::connect())->getMessage());
        $held->release();
    }

    public function test_a_child_is_started_once_for_a_process_and_ends_with_it(): void
    {
        $script = $this->script('
            $url = "file:$dir/locks";
            $held = Client::connect($url)->lock("k")->acquire();
            $again = Client::connect($url);
            var_dump($again->lock("k")->try());
            $again->close();
            $again->lock("j")->run(fn () => null);
            $held->check();
            echo trim(file_get_contents("/proc/self/task/" . getmypid() . "/children")), "\n";
            fgets(STDIN);');
        $this->assertSame('NULL', $script->line());
        $children = explode(' ', $script->line());
        $this->assertCount(1, $children, implode(' ', $children));
        $this->assertStringEndsWith("\0serve\0--stdio\0", file_get_contents("/proc/$children[0]/cmdline"));
        $script->tell('end');
        $this->assertSame(0, $script->end(), $script->errors());
        $this->assertFileDoesNotExist("/proc/$children[0]");
    }

    /** The descriptors of a script that `connect` has opened, by what is not closed on exec. */
    private function open(string $to): string
    {
        $script = $this->script('
            $before = scandir("/proc/self/fd");
            $client = Client::connect(' . var_export($to, true) . ');
            $counted = 0;
            foreach (array_diff(scandir("/proc/self/fd"), $before) as $fd) {
                $info = @file_get_contents("/proc/self/fdinfo/$fd");
                if ($info !== false && preg_match("/flags:\s+(\d+)/", $info, $flags)) {
                    $counted++;
                    echo octdec($flags[1]) & 02000000 ? "" : "$fd " . readlink("/proc/self/fd/$fd") . " is open ";
                }
            }
            echo "$counted\n";');
        return $script->line();
    }

    public function test_descriptors_are_closed_on_exec(): void
    {
        $this->server($this->store('file'));
        $this->assertSame('1', $this->open("$this->dir/server.sock"));
        $this->assertSame('3', $this->open("file:$this->dir/locks"));
    }

    /** @return array<string, array{string}> */
    public function ends(): array
    {
        return [
            'exit' => ['exit(3);'],
            'an exception' => ['throw new Exception("x");'],
            'a fatal error' => ['$x = str_repeat("x", 1 << 30);'],
            'a signal' => ['posix_kill(getmypid(), SIGKILL);'],
        ];
    }

    /** @dataProvider ends */
    public function test_a_lock_ends_with_its_process(string $end): void
    {
        $this->server($this->store());
        foreach (["$this->dir/server.sock", $this->store()] as $to) {
            $script = $this->script('Client::connect(' . var_export($to, true) . ')->lock("k")->run(function () { echo "held\n"; fgets(STDIN); ' . $end . ' });');
            $this->assertSame('held', $script->line());
            $lock = Client::connect("$this->dir/server.sock")->lock('k');
            $this->assertNull($lock->try());
            $script->tell('end');
            $this->assertNotSame(0, $script->end());
            $this->assertLessThan(10, $lock->wait(10)->run(fn () => 1));
        }
    }

    public function test_the_child_of_a_script_has_ended_with_it_and_released(): void
    {
        $script = $this->script('Client::connect("file:$dir/locks")->lock("k")->run(function () { exit(3); });');
        $this->assertSame(3, $script->end());
        $this->assertNotNull(Client::connect("file:$this->dir/locks")->lock('k')->try());
    }

    public function test_a_missing_program_is_named_with_what_to_do(): void
    {
        foreach (['FENCELOCK_PROGRAM' => '/does/not/exist', 'PATH' => '/does/not/exist'] as $name => $value) {
            $script = $this->script('try { Client::connect("file:$dir/locks"); } catch (Fencelock\UsageError $e) { echo $e->getMessage(), "\n"; }',
                [$name => $value] + ['FENCELOCK_PROGRAM' => '']);
            $line = $script->line();
            $this->assertStringContainsString('install fencelock', $line);
            $this->assertStringContainsString('FENCELOCK_PROGRAM', $line);
        }
    }

    public function test_a_socket_where_nobody_listens_is_named_with_what_to_do(): void
    {
        $message = $this->thrown(Unreachable::class, fn () => Client::connect("$this->dir/none.sock"))->getMessage();
        $this->assertStringContainsString("fencelock serve --listen unix:$this->dir/none.sock", $message);
        fclose(stream_socket_server("unix://$this->dir/left.sock"));
        $this->assertStringContainsString('refused', $this->thrown(Unreachable::class, fn () => Client::connect("$this->dir/left.sock"))->getMessage());
        putenv('FENCELOCK_SOCKET=fencelock.sock');
        $this->assertStringContainsString('unix:/run/fencelock.sock', $this->thrown(UsageError::class, fn () => Client::connect())->getMessage());
    }

    public function test_a_server_that_is_slow_to_accept_is_waited_for(): void
    {
        $server = $this->script('
            $flags = STREAM_SERVER_BIND | STREAM_SERVER_LISTEN;
            $server = stream_socket_server("unix://$dir/slow.sock", $code, $why, $flags, stream_context_create(["socket" => ["backlog" => 1]]));
            while ($one = @stream_socket_client("unix://$dir/slow.sock")) {
                $all[] = $one;
            }
            echo "full\n";
            fgets(STDIN);
            $all = [];
            while ($one = stream_socket_accept($server)) {
                if (fgets($one) !== false) {
                    fwrite($one, \'' . sprintf(self::HELLO, 1) . '\' . "\n");
                    exit;
                }
            }');
        $this->assertSame('full', $server->line());
        $client = $this->script('echo "connecting\n"; Client::connect("$dir/slow.sock"); echo "connected\n";');
        $this->assertSame('connecting', $client->line());
        usleep(300000);
        $server->tell('accept');
        $this->assertSame('connected', $client->line());
    }

    public function test_another_protocol_is_refused(): void
    {
        foreach ([
            [UsageError::class, 'of one release', 'read hello; echo \'' . sprintf(self::HELLO, 2) . '\'; read end'],
            [UsageError::class, 'speaks 2', 'read hello; echo \'{"jsonrpc":"2.0","id":1,"error":{"code":64,"message":"speaks 2 and 3","data":null}}\'; read end'],
            [Unreachable::class, 'does not speak the protocol', 'read hello; echo "HTTP/1.1 400 Bad Request"; read end'],
            [Unreachable::class, 'closed the connection', 'read hello'],
            [Unreachable::class, 'exit code 69', 'exit 69'],
        ] as [$class, $words, $program]) {
            $script = $this->script('try { Client::connect("file:$dir/locks"); } catch (' . $class . ' $e) { echo $e->getMessage(), "\n"; }',
                ['FENCELOCK_PROGRAM' => $this->program($program)]);
            $this->assertStringContainsString($words, $script->line());
        }
    }

    public function test_what_the_program_says_when_it_refuses_is_quoted(): void
    {
        $script = $this->script('try { Client::connect("nonsense://host"); } catch (Fencelock\UsageError $e) { echo $e->getMessage(), "\n"; }');
        $this->assertMatchesRegularExpression('/exit code 64: fencelock: .*nonsense/', $script->line());
        $this->assertSame(0, $script->end());
        $this->assertSame('', $script->errors());
    }

    public function test_what_the_program_says_while_it_runs_is_passed_on(): void
    {
        $program = 'echo early >&2; read hello; echo \'' . sprintf(self::HELLO, 1) . '\'; read end; echo late >&2';
        $script = $this->script('Client::connect("file:$dir/locks");', ['FENCELOCK_PROGRAM' => $this->program($program)]);
        $this->assertSame(0, $script->end());
        $this->assertSame("early\nlate\n", $script->errors());
    }

    public function test_a_server_that_has_too_many_connections_says_so(): void
    {
        $this->server($this->store('file'), '--connections', '1');
        $client = $this->until(function () {
            try {
                return Client::connect("$this->dir/server.sock");
            } catch (Unreachable) {
                // The connection that has found the server is not yet closed there.
            }
        });
        $refused = $this->thrown(Unreachable::class, fn () => Client::connect("$this->dir/server.sock"));
        $this->assertStringContainsString('connections', $refused->getMessage());
        $client->lock('k')->acquire()->release();
    }

    public function test_the_next_lock_connects_to_a_server_that_was_started_again(): void
    {
        $server = $this->server($this->store());
        $client = Client::connect("$this->dir/server.sock");
        $client->lock('k')->acquire()->release();
        $server->signal(SIGKILL);
        $server->end();
        $this->thrown(Unreachable::class, fn () => $client->lock('k')->try());
        $this->server($this->store());
        $client->lock('k')->acquire()->release();
        $this->assertFalse($client->status('k')['held']);
    }

    public function test_a_server_that_is_stopped_grants_no_more_and_lets_holders_finish(): void
    {
        $server = $this->server($this->store(), '--grace', '30s');
        $client = Client::connect("$this->dir/server.sock");
        $held = $client->lock('k')->acquire();
        $server->signal(SIGTERM);
        $refused = $this->until(function () use ($client) {
            try {
                $client->lock('j')->acquire()->release();
            } catch (FencelockException $e) {
                return $e;
            }
        });
        $this->assertTrue($refused->getCode() === 71 || $refused instanceof Unreachable, (string) $refused);
        $held->check();
        // Its successor serves new locks of the same client meanwhile.
        $this->server($this->store());
        $this->until(function () use ($client) {
            try {
                $client->lock('j')->acquire()->release();
                return true;
            } catch (Unreachable) { // it was not yet there
            }
        });
        $held->check();
        $held->release();
        $this->assertSame(0, $server->end(), $server->errors());
    }

    public function test_requests_of_cgi_without_a_socket_say_how_to_name_one(): void
    {
        $this->server($this->store());
        file_put_contents("$this->dir/page.php", '<?php require ' . var_export(__DIR__ . '/autoload.php', true) . ';
            try { echo "held ", Fencelock\Client::connect()->lock("k")->run(fn ($held) => $held->token), "\n"; } catch (Fencelock\UsageError $e) { echo $e->getMessage(), "\n"; }');
        $page = ['SCRIPT_FILENAME' => "$this->dir/page.php", 'REDIRECT_STATUS' => '1', 'REQUEST_METHOD' => 'GET'];
        $body = function (array $env): string {
            for ($cgi = $this->start(['php-cgi'], $env); trim($cgi->line()) !== '';) {
            }
            return $cgi->line();
        };
        $this->assertStringContainsString('env[FENCELOCK_SOCKET]=unix:/run/fencelock.sock', $body($page));
        $this->assertStringStartsWith('held ', $body($page + ['FENCELOCK_SOCKET' => "$this->dir/server.sock"]));
    }
}
