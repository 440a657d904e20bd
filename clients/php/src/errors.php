<?php

declare(strict_types=1);

namespace Fencelock;

/**
 * What a server refused or could not do. The code is that of the protocol: {@see LockBusy} 75, {@see LockLost} 76, {@see Unreachable} 69,
 * {@see UsageError} 64; this class itself for the rest, as 71 (the server is being stopped) and -32001 (a limit of the session is reached).
 */
class FencelockException extends \RuntimeException
{
    /**
     * @param ?string $key the key that the error is about
     * @param ?array<string, mixed> $holder who holds the key: host, pid, label and name
     * @param ?float $remaining seconds until the lease of the holder ends unless it is renewed
     * @param ?float $waited seconds that the request has waited
     */
    final public function __construct(
        string $message,
        int $code,
        public readonly ?string $key = null,
        public readonly ?array $holder = null,
        public readonly ?float $remaining = null,
        public readonly ?float $waited = null,
    ) {
        parent::__construct($message, $code);
    }

    /** @internal @param array{code: int, message: string, data?: ?array<string, mixed>} $error of the protocol */
    final public static function of(array $error): self
    {
        $advice = (string) ($error['data']['advice'] ?? '');
        $known = array_intersect_key($error['data'] ?? [], ['key' => 1, 'holder' => 1, 'remaining' => 1, 'waited' => 1]);
        return new (match ($error['code']) {
            75 => LockBusy::class,
            76 => LockLost::class,
            69 => Unreachable::class,
            64, -32600, -32601, -32602 => UsageError::class,
            default => self::class,
        })($error['message'] . (str_contains($error['message'], $advice) ? '' : ": $advice"), $error['code'], ...$known);
    }
}

/** Another client holds the key, and the time to wait is over. */
final class LockBusy extends FencelockException {}

/** The lock is not held any more, or that is doubtful: stop writing what it protects. */
final class LockLost extends FencelockException {}

/** The server, or the store behind it, gives no answer, so that nobody knows who holds the key. */
final class Unreachable extends FencelockException {}

/** The request is not valid, or the client is not set up. The message says what to change. */
final class UsageError extends FencelockException {}
