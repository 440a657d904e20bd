<?php
// php worker.php fencelock|way6|redlock [version]
// php worker.php symfony AUTOLOAD [version]
//
// PHP's locks, one task for each process; ../README.md describes a worker. `way6` and `redlock` are the widespread code that
// fencelock-interop shares locks with.
declare(strict_types=1);

require __DIR__ . '/Task.php';

/** @return array{string, Closure(Redis, int): (Closure(string): ?Closure)} its name, and how it locks */
function library(array $arguments): array
{
    $shared = dirname(__DIR__, 3) . '/interop/peers/php';
    switch ($arguments[0]) {
        case 'fencelock': // the client of this tree, and the server that FENCELOCK_SOCKET names
            require dirname(__DIR__, 4) . '/clients/php/tests/autoload.php';
            $client = Fencelock\Client::connect();
            return ['fencelock, ', static fn () => static fn (string $key) => $client->lock($key)->acquire()->release(...)];
        case 'way6':
        case 'redlock':
            require "$shared/protocol.php";
            require "$shared/CompareAndDelete.php";
            require "$shared/WaySix.php";
            require "$shared/Redlock.php";
            require __DIR__ . '/widespread.php';
            return ['', $arguments[0] === 'way6' ? way_six(...) : redlock(...)];
        case 'symfony':
            require $arguments[1];
            require __DIR__ . '/symfony.php';
            return ['Symfony Lock ' . symfony_version() . ', ', symfony(...)];
    }
    throw new InvalidArgumentException("no such library: $arguments[0]");
}

$arguments = array_slice($argv, 1);
[$name, $connect] = library($arguments);
if (end($arguments) === 'version') {
    echo $name, 'phpredis ', phpversion('redis'), ', PHP ', PHP_VERSION, "\n";
    exit(0);
}
$job = json_decode(fgets(STDIN), true, 8, JSON_THROW_ON_ERROR);
if ($job['tasks'] !== 1) {
    throw new InvalidArgumentException('a process of PHP is one task');
}
$url = parse_url($job['url']);
$server = new Redis();
$server->connect($url['host'], $url['port'], 5.0);
$task = new Task($job, $server, $connect($server, $job['ttl_ms']));
echo "ready\n";
fgets(STDIN);
echo json_encode($task->run(), JSON_THROW_ON_ERROR), "\n";
