<?php
// php pdo.php PORT
//
// Transactions that check a fencing token, and one that is a lock. tests/transactions.rs tries them.
declare(strict_types=1);

/** Returns whether the token was not older than that of another writer, which is FL001. */
function write_behind_gate(PDO $db, int $token, int $pieces): bool
{
    $db->beginTransaction();
    try {
        $db->prepare("SELECT fencelock.pass('stock', ?)")->execute([$token]);
        $db->prepare('UPDATE stock SET pieces = ? WHERE id = 1')->execute([$pieces]);
        return $db->commit();
    } catch (PDOException $error) {
        $db->rollBack();
        if ($error->getCode() === 'FL001') {
            return false;
        }
        throw $error;
    }
}

/** The same without a gate: the row has the token of its last writer. */
function write_if_newest(PDO $db, int $token, int $pieces): bool
{
    $update = $db->prepare('UPDATE stock SET pieces = ?, fence = ? WHERE id = 1 AND fence <= ?');
    $update->execute([$pieces, $token, $token]);
    return $update->rowCount() === 1;
}

/**
 * Begins a transaction that holds the key until it ends. Returns its token, or null while a client holds the key.
 *
 * While another transaction holds it, this waits, and throws 55P03 after the limit.
 */
function lock_in(PDO $db, string $key, string $limit): ?int
{
    $db->beginTransaction();
    $db->prepare("SELECT set_config('lock_timeout', ?, true)")->execute([$limit]);
    $locked = $db->prepare('SELECT fencelock.lock_in(?)');
    $locked->execute([$key]);
    return $locked->fetchColumn();
}

function answer(PDO $db, array $words): string
{
    switch ($words[0]) {
        case 'gate':
            return write_behind_gate($db, (int) $words[1], (int) $words[2]) ? 'written' : 'stale';
        case 'newest':
            return write_if_newest($db, (int) $words[1], (int) $words[2]) ? 'written' : 'stale';
        case 'lock':
            try {
                $token = lock_in($db, $words[1], $words[2]);
            } catch (PDOException $error) {
                $db->rollBack();
                return $error->getCode() === '55P03' ? 'busy' : 'error ' . $error->getMessage();
            }
            if ($token === null) {
                $db->rollBack();
                return 'held';
            }
            return "locked $token";
        case 'commit':
            $db->commit();
            return 'committed';
        default:
            return "error no such word: $words[0]";
    }
}

$db = new PDO("pgsql:host=127.0.0.1;port=$argv[1];dbname=postgres", 'postgres', '', [
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
]);
echo 'ready PDO of PHP ', PHP_VERSION, "\n";
while (($line = fgets(STDIN)) !== false) {
    echo answer($db, explode(' ', trim($line))), "\n";
}
