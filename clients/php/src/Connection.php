<?php

declare(strict_types=1);

namespace Fencelock;

/**
 * One session with a server, over a socket or the pipes of a child: requests, replies, and what the server tells on its own.
 *
 * It belongs to the process that made it. In a forked child nothing is read or sent, and its end closes only copies of the descriptors.
 *
 * @internal
 */
final class Connection
{
    /** Seconds without a word, after which a server counts as gone. After half of them it is asked for one. */
    private const SILENCE = 10.0;

    /** @var array<string, self> The children of this process by URL. */
    private static array $children = [];

    /** @var \Closure(resource, float): void Waits until a stream can be read, for at most so many seconds. */
    public \Closure $idle;
    private int $pid;
    /** Why nothing more can come, or null. */
    private ?string $ended = null;
    private int $code = 0;
    /** The server is being stopped: it grants no more. */
    private bool $ending = false;
    /** @var array<int, string> Why a hold was lost. */
    private array $lost = [];
    /** Bytes of a request at most, as the server says. */
    private int $limit = 65536;
    private int $next = 1;
    private string $buffer = '';
    /** @var array<int, null|false|array<string, mixed>> The reply to a request: null if it is awaited, false if nobody waits any more. */
    private array $replies = [];

    /**
     * @param resource $in
     * @param resource $out
     * @param ?resource $process
     * @param ?resource $errors
     */
    private function __construct(private readonly string $peer, private $in, private $out, private $errors = null, private $process = null)
    {
        $this->pid = (int) getmypid();
        $this->idle = self::select(...);
        array_map(fn ($stream) => stream_set_blocking($stream, false), array_filter([$in, $out, $errors]));
        stream_set_read_buffer($out, 0);
        // A child connects to its store before it answers.
        $hello = $this->request('hello', ['protocol' => 1, 'client' => 'php/0.1.0'], self::SILENCE);
        ($hello['protocol'] ?? null) === 1 || throw new UsageError("$peer does not speak protocol 1: install a client and a server of one release", 64);
        $this->limit = $hello['limits']['line'] ?? $this->limit;
    }

    /** A session with the server at a socket. */
    public static function socket(string $path): self
    {
        // PHP connects without blocking, so a full backlog is EAGAIN.
        for ($until = self::now() + 5; !($socket = @stream_socket_client("unix://$path", $code, $why, 5)) && $code === 11 && self::now() < $until; usleep(10000));
        $do = $code === 13 ? 'its server admits a group with `--mode 0660 --group GROUP`' : "start `fencelock serve --listen unix:$path`, or name the socket of a server";
        $socket || throw new Unreachable("cannot connect to the socket $path: $why: $do", 69);
        // PHP cannot mark a socket as closed on exec, but what it receives over another socket. Swoole marks its own, of another type.
        if (stream_get_meta_data($socket)['stream_type'] === 'unix_socket' && function_exists('socket_recvmsg') && socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pair)) {
            socket_sendmsg($pair[0], ['iov' => ['.'], 'control' => [['level' => SOL_SOCKET, 'type' => SCM_RIGHTS, 'data' => [$socket]]]]);
            $message = ['controllen' => socket_cmsg_space(SOL_SOCKET, SCM_RIGHTS, 1), 'buffer_size' => 1];
            socket_recvmsg($pair[1], $message, MSG_CMSG_CLOEXEC);
            $socket = socket_export_stream($message['control'][0]['data'][0]);
        }
        return new self("the server at $path", $socket, $socket);
    }

    /** The session with a child of this process, which is started once for a URL, and again after a fork. */
    public static function child(?string $url): self
    {
        $child = &self::$children[$url ?? ''];
        if ($child?->lives()) {
            return $child;
        }
        $program = getenv('FENCELOCK_PROGRAM') ?: 'fencelock';
        $paths = str_contains($program, '/') ? [$program] : array_map(fn ($dir) => "$dir/$program", explode(':', (string) getenv('PATH')));
        $found = array_values(array_filter($paths, fn ($path) => is_file($path) && is_executable($path)))[0] ?? null;
        // A URL may have a password, and others can read arguments.
        $env = $url === null ? null : ['FENCELOCK_URL' => $url] + getenv();
        $process = $found === null ? false : @proc_open([$found, 'serve', '--stdio'], [['pipe', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes, null, $env);
        $process || throw new UsageError("cannot start `$program`: install fencelock, name it in FENCELOCK_PROGRAM, or name a socket in FENCELOCK_SOCKET", 64);
        return $child = new self("`$found serve --stdio`", ...$pipes, process: $process);
    }

    /** Whether this is the process that connected. */
    public function mine(): bool
    {
        return $this->pid === getmypid();
    }

    /** Whether a new lock can be asked for here. */
    public function lives(): bool
    {
        return $this->loss(0) === null && !$this->ending;
    }

    /** Why a hold counts as lost, or null, as far as it is known without asking. */
    public function loss(int $hold): ?string
    {
        $this->read();
        $ended = $this->ended === null ? null : "$this->peer is gone: $this->ended";
        return $this->mine() ? $ended ?? $this->lost[$hold] ?? null : "it belongs to process $this->pid, which forked this one: take it here too";
    }

    /**
     * Sends a request and returns the result, or what `$make` makes of it and of the time when the request was sent. If an exception ends
     * the wait for a lock, as of a signal handler or in a fiber that is destroyed, it is withdrawn, and given back if it was granted.
     *
     * @param array<string, mixed> $params
     * @param ?float $patience seconds for the answer; without it, as long as the server says that it works
     */
    public function request(string $method, array $params, ?float $patience = null, ?\Closure $make = null): mixed
    {
        [$id, $sent, $made] = [$this->next++, self::now(), null];
        $line = $this->line($method, $params, $id);
        $this->replies[$id] = null;
        try {
            $this->write($line);
            $result = $this->result($id, $patience);
            return $made = $make === null ? $result : $make($result, $sent);
        } finally {
            [$reply, $this->replies[$id]] = [$this->replies[$id], false];
            if ($reply !== null) {
                $this->take($made === null ? $reply : ['id' => $id]);
            } elseif ($method === 'lock') {
                // The answer comes at once, and not to `idle`: a fiber that is destroyed cannot be suspended.
                $this->send('cancel', ['id' => $id]);
                for ($until = self::now() + 1; isset($this->replies[$id]) && $this->loss(0) === null && self::now() < $until; self::select($this->out, 0.1));
            }
        }
    }

    /** Sends a request whose answer nobody awaits, and says whether it could. @param array<string, mixed> $params */
    public function send(string $method, array $params): bool
    {
        return $this->write($this->line($method, $params, $this->next++));
    }

    /** @param array<string, mixed> $params */
    private function line(string $method, array $params, int $id): string
    {
        $line = json_encode(['jsonrpc' => '2.0', 'id' => $id, 'method' => $method, 'params' => $params]) . "\n";
        $line !== "\n" && strlen($line) <= $this->limit
            || throw new UsageError("the request cannot be sent: texts are UTF-8, times are finite, and all has at most $this->limit bytes", 64);
        return $line;
    }

    /** Nothing is sent in a fork, and after half a line. */
    private function write(string $line): bool
    {
        try {
            $until = $this->mine() && $this->ended === null ? self::now() + self::SILENCE : 0;
            for (; $line !== '' && self::now() < $until && ($written = @fwrite($this->in, $line)) !== false; $line = substr($line, $written)) {
                $written > 0 || usleep(1000);
            }
        } finally {
            $line === '' || $this->loss(0) || $this->ended = 'it takes no more requests';
        }
        return $line === '';
    }

    /** @return array<string, mixed> */
    private function result(int $id, ?float $patience): array
    {
        for ($heard = self::now(), $asked = false; !isset($this->replies[$id]);) {
            $left = $heard + ($patience ?? self::SILENCE) - self::now();
            if ($left <= 0 || !$this->mine() || $this->ended !== null) {
                $why = $this->loss(0) ?? "$this->peer gives no answer: see whether it is stopped, and start it again";
                throw $this->code === 64 ? new UsageError($why, 64) : new Unreachable($why, 69);
            }
            // Every server answers this at once, and nothing is cancelled by it.
            $asked = $asked || ($patience === null && $left < self::SILENCE / 2 && $this->send('cancel', ['id' => 0]));
            ($this->idle)($this->out, min($left, self::SILENCE / 2));
            $this->read() && $patience === null && [$heard, $asked] = [self::now(), false];
        }
        $reply = $this->replies[$id];
        return isset($reply['error']) ? throw FencelockException::of($reply['error']) : (array) ($reply['result'] ?? []);
    }

    /** Reads what is there without blocking, and says whether something was. */
    private function read(): bool
    {
        for ($read = false; $this->mine() && $this->ended === null && ($bytes = (string) @fread($this->out, 65536)) !== ''; $read = true) {
            $this->buffer .= $bytes;
        }
        while (($end = strpos($this->buffer, "\n")) !== false) {
            $message = json_decode(substr($this->buffer, 0, $end), true);
            $this->buffer = substr($this->buffer, $end + 1);
            isset($message['jsonrpc']) ? $this->take($message) : $this->ended ??= 'it does not speak the protocol of `fencelock serve`';
        }
        if ($this->mine() && $this->ended === null && feof($this->out)) {
            $this->code = $code = $this->process ? $this->reap() : 0;
            $this->ended = rtrim(($code === 0 ? 'it has closed the connection' : "it ended with the exit code $code") . ": {$this->said()}", ": \n");
        }
        // What it says while it runs is not lost.
        ($said = $this->said()) === '' || file_put_contents('php://stderr', $said);
        return $read;
    }

    /** What the child has said on stderr since. */
    private function said(): string
    {
        return $this->errors && $this->mine() ? (string) @stream_get_contents($this->errors) : '';
    }

    /** @param array<string, mixed> $message */
    private function take(array $message): void
    {
        $id = $message['id'] ?? 0;
        if (($this->replies[$id] ?? null) === false) {
            unset($this->replies[$id]);
            isset($message['result']['hold']) && $this->send('release', ['hold' => $message['result']['hold']]);
        } elseif (array_key_exists($id, $this->replies)) {
            $this->replies[$id] = $message;
        } elseif (($message['method'] ?? null) === 'lost') {
            $this->lost[$message['params']['hold']] = $message['params']['cause'];
        }
        $this->ended ??= $id === 0 ? $message['error']['message'] ?? null : null;
        $this->ending = $this->ending || ($message['method'] ?? null) === 'ending';
    }

    /** Seconds of the monotonic clock. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /** @param resource $stream */
    public static function select($stream, float $seconds): void
    {
        [$read, $write, $except] = [[$stream], [], []];
        // False after a signal, and for more descriptors than select(2) takes.
        @stream_select($read, $write, $except, (int) $seconds, (int) (fmod($seconds, 1) * 1e6)) === false && usleep(1000);
    }

    /** Waits for the end of the child, a second at most, and returns its exit code. */
    private function reap(): int
    {
        for ($until = self::now() + 1; ($status = proc_get_status($this->process))['running'] && self::now() < $until; usleep(1000));
        return max($status['exitcode'], 0);
    }

    public function __destruct()
    {
        if ($this->process && $this->mine() && get_resource_type($this->process) === 'process') { // not of Swoole, which can ask only in a coroutine
            // A child has released the locks when it has ended. At the end of a script they are still there, and need nothing more.
            fclose($this->in);
            $this->reap();
            file_put_contents('php://stderr', $this->said());
            $this->pid = 0;
        }
    }
}
