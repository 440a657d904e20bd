<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Client;
use Fencelock\FencelockException;
use Fencelock\Held;
use Fencelock\LockBusy;
use Fencelock\LockLost;
use Fencelock\UsageError;

/** The kinds of locks. */
final class LockTest extends ServerTestCase
{
    private function client(string $kind = 'redis'): Client
    {
        is_file("$this->dir/started") || $this->server($this->store($kind));
        touch("$this->dir/started");
        return Client::connect("unix:$this->dir/server.sock");
    }

    /** @dataProvider stores */
    public function test_a_lock_excludes_others_until_it_is_released(string $kind): void
    {
        $held = $this->client($kind)->lock('k')->acquire();
        $other = $this->client($kind)->lock('k');
        $this->assertNull($other->try());
        $held->check();
        $held->release();
        $next = $other->try();
        $this->assertInstanceOf(Held::class, $next);
        $this->assertGreaterThan($held->token, $next->token);
        $this->assertSame(['k'], $next->keys);
        $next->release();
    }

    /** @dataProvider stores */
    public function test_the_error_of_a_busy_key_names_the_holder(string $kind): void
    {
        $client = $this->client($kind);
        $held = $client->lock('k')->label('a nightly report')->acquire();
        $busy = $this->thrown(LockBusy::class, fn () => $client->lock('k')->wait(0.3)->acquire());
        $this->assertSame(75, $busy->getCode());
        $this->assertSame('k', $busy->key);
        $this->assertSame('a nightly report', $busy->holder['label']);
        $this->assertStringContainsString("{$busy->holder['host']}:{$busy->holder['pid']}", $busy->getMessage());
        $this->assertGreaterThanOrEqual(0.3, $busy->waited);
        if ($kind === 'redis') {
            $this->assertGreaterThan(0, $busy->remaining);
            $this->assertLessThanOrEqual(30, $busy->remaining);
        }
        $held->release();
    }

    public function test_a_waiter_is_served_when_the_holder_releases(): void
    {
        $client = $this->client();
        $script = $this->script('$held = Client::connect("$dir/server.sock")->lock("k")->acquire(); echo "$held->token\n"; fgets(STDIN); $held->release();');
        $token = (int) $script->line();
        $this->assertNull($client->lock('k')->try());
        $script->tell('release');
        $this->assertGreaterThan($token, $client->lock('k')->wait(30)->run(fn (Held $held) => $held->token));
        $this->assertSame(0, $script->end());
    }

    public function test_several_keys_are_taken_all_or_none(): void
    {
        $client = $this->client();
        $b = $client->lock('b')->acquire();
        $this->assertNull($client->lockAll(['a', 'b'])->try());
        $client->lock('a')->wait(0)->run(fn () => null);
        $b->release();
        $both = $client->lockAll(['a', 'b'])->acquire();
        $this->assertSame(['a', 'b'], $both->keys);
        $this->assertCount(2, $both->tokens);
        $this->assertGreaterThan($b->token, $both->tokens[1]);
        $this->assertNull($client->lock('a')->try());
        $both->release();
        $this->assertNotNull($client->lock('a')->try());
    }

    public function test_shared_locks_exclude_only_exclusive_ones(): void
    {
        $client = $this->client();
        $one = $client->lock('k')->shared()->acquire();
        $two = $client->lock('k')->shared()->wait(5)->acquire();
        $this->assertNull($client->lock('k')->try());
        $one->release();
        $this->assertNull($client->lock('k')->try());
        $two->release();
        $this->assertNotNull($client->lock('k')->try());
    }

    public function test_a_semaphore_has_as_many_permits_as_its_limit(): void
    {
        $semaphore = $this->client()->semaphore('k', 3);
        $two = $semaphore->permits(2)->acquire();
        $this->assertNull($semaphore->permits(2)->try());
        $one = $semaphore->try();
        $this->assertNotNull($one);
        $this->assertNull($semaphore->try());
        $two->release();
        $this->assertNotNull($semaphore->permits(2)->try());
    }

    public function test_each_slot_is_given_once(): void
    {
        $slots = $this->client()->slots('k', 2);
        [$one, $two] = [$slots->acquire(), $slots->acquire()];
        $numbers = [$one->slot, $two->slot];
        sort($numbers);
        $this->assertSame([0, 1], $numbers);
        $this->assertNull($slots->try());
        $free = $one->slot;
        $one->release();
        $this->assertSame($free, $slots->try()?->slot);
    }

    /** @dataProvider stores */
    public function test_remaining_is_at_most_the_ttl_or_without_end_in_files(string $kind): void
    {
        $held = $this->client($kind)->lock('k')->ttl(20)->acquire();
        if ($kind === 'file') {
            $this->assertSame(INF, $held->remaining());
        } else {
            $this->assertGreaterThan(5, $held->remaining());
            $this->assertLessThanOrEqual(20, $held->remaining());
        }
        $held->check();
        $held->release();
    }

    public function test_a_lock_is_renewed_for_longer_than_its_ttl(): void
    {
        $held = $this->client()->lock('k')->ttl(2)->acquire();
        for ($until = microtime(true) + 4.5; microtime(true) < $until; usleep(50000)) {
            $held->check();
        }
        $held->release();
        $this->assertTrue(true);
    }

    public function test_run_returns_what_the_work_returns_and_releases(): void
    {
        $lock = $this->client()->lock('k');
        $this->assertSame('done', $lock->run(function (Held $held) use ($lock): string {
            $this->assertNull($lock->try());
            return 'done';
        }));
        $this->assertNotNull($lock->try());
    }

    public function test_run_releases_after_an_exception(): void
    {
        $lock = $this->client()->lock('k');
        $thrown = $this->thrown(\DomainException::class, fn () => $lock->run(fn () => throw new \DomainException('mine')));
        $this->assertSame('mine', $thrown->getMessage());
        $this->assertNotNull($lock->try());
    }

    public function test_a_lock_that_was_released_is_not_held(): void
    {
        $held = $this->client()->lock('k')->acquire();
        $held->release();
        $held->release();
        $this->assertStringContainsString('released', $this->thrown(LockLost::class, $held->check(...))->getMessage());
        $this->thrown(LockLost::class, $held->remaining(...));
    }

    public function test_a_lock_without_a_variable_is_released(): void
    {
        $client = $this->client();
        $client->lock('k')->acquire();
        $client->lock('k')->wait(5)->acquire()->release();
        $held = $client->lock('k')->acquire();
        unset($client, $held);
        $this->client()->lock('k')->wait(5)->acquire()->release();
        $this->assertTrue(true);
    }

    public function test_a_lock_ends_with_its_maximum_time(): void
    {
        $client = $this->client();
        $held = $client->lock('k')->maxHold(0.5)->acquire();
        $this->assertSame('k', $this->loss($held->check(...))->key);
        $this->thrown(LockLost::class, $held->release(...));
        $client->lock('k')->wait(5)->acquire()->release();
    }

    public function test_status_and_list_show_who_holds_a_key(): void
    {
        $client = $this->client();
        $held = $client->lock('k')->label('a label')->acquire();
        $this->assertSame('a label', $client->status('k')['owner']['label']);
        $this->assertSame(['k'], array_column($client->list(), 'key'));
        $held->release();
        $this->assertFalse($client->status('k')['held']);
        $this->assertSame([], $client->list('k'));
    }

    public function test_mistakes_are_named_and_end_nothing(): void
    {
        $client = $this->client();
        $held = $client->lock('k')->acquire();
        foreach ([
            'an empty key' => fn () => $client->lock('')->try(),
            'no key' => fn () => $client->lockAll([])->try(),
            'a key in Latin 1' => fn () => $client->lock("caf\xe9")->try(),
            'a wait below 0' => fn () => $client->lock('w')->wait(-1)->acquire(),
            'a wait that is no number' => fn () => $client->lock('w')->wait(NAN)->acquire(),
            'permits without a limit' => fn () => $client->lock('w')->permits(2)->try(),
            'a line that is too long' => fn () => $client->lock('w')->label(str_repeat('x', 70000))->try(),
        ] as $what => $call) {
            $started = microtime(true);
            $this->assertNotSame('', $this->thrown(UsageError::class, $call)->getMessage(), $what);
            $this->assertLessThan(0.9, microtime(true) - $started, $what);
        }
        $this->assertGreaterThan(0, $held->remaining());
        $held->release();
    }

    public function test_what_is_held_cannot_be_copied(): void
    {
        $held = $this->client()->lock('k')->acquire();
        $this->thrown(\Exception::class, fn () => serialize($held));
        $this->thrown(\Error::class, fn () => clone $held);
        $held->check();
    }
}
