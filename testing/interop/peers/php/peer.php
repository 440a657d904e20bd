<?php
// php peer.php way6|redlock PORT...
declare(strict_types=1);

require __DIR__ . '/protocol.php';
require __DIR__ . '/CompareAndDelete.php';
require __DIR__ . '/WaySix.php';
require __DIR__ . '/Redlock.php';

$servers = connect(array_slice($argv, 2));
$lock = $argv[1] === 'redlock' ? new Redlock($servers) : new WaySix($servers[0]);
serve($lock, $servers, 'PHP ' . PHP_VERSION . ', phpredis ' . phpversion('redis'));
