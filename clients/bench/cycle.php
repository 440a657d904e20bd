<?php

require __DIR__ . '/../php/tests/autoload.php';
$lock = Fencelock\Client::connect()->lock('kept');
for ($times = []; count($times) < 4000; $times[] = (hrtime(true) - $begun) / 1000) {
    $begun = hrtime(true);
    $lock->acquire()->release();
}
echo json_encode($times);
