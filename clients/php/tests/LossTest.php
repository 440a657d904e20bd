<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Client;
use Fencelock\LockLost;
use Fencelock\Unreachable;

/** A loss is seen by the next call, and never taken for a release. */
final class LossTest extends ServerTestCase
{
    private Process $server;
    private Client $client;

    protected function setUp(): void
    {
        parent::setUp();
        $this->server = $this->server($this->store());
        $this->client = Client::connect("$this->dir/server.sock");
    }

    public function test_a_key_that_is_deleted_is_lost(): void
    {
        $held = $this->client->lock('k')->ttl(2)->acquire();
        $this->emptyRedis();
        $lost = $this->loss($held->check(...));
        $this->assertSame(76, $lost->getCode());
        $this->assertSame('k', $lost->key);
        $this->assertStringStartsWith('the lock k is not held any more: ', $lost->getMessage());
        foreach ([$held->check(...), $held->remaining(...), $held->release(...), $held->release(...)] as $call) {
            $this->thrown(LockLost::class, $call);
        }
    }

    public function test_remaining_notices_a_key_that_was_deleted(): void
    {
        $held = $this->client->lock('k')->ttl(2)->acquire();
        $this->emptyRedis();
        $this->loss($held->remaining(...));
        $this->thrown(LockLost::class, $held->check(...));
    }

    public function test_release_throws_if_the_lock_was_lost_before(): void
    {
        $held = $this->client->lock('k')->acquire();
        $this->emptyRedis();
        $this->thrown(LockLost::class, $held->release(...));
    }

    public function test_run_throws_if_the_lock_was_lost_during_the_work(): void
    {
        $this->thrown(LockLost::class, fn () => $this->client->lock('k')->run(fn () => $this->emptyRedis()));
        $both = $this->thrown(LockLost::class, fn () => $this->client->lock('k')->run(function (): void {
            $this->emptyRedis();
            throw new \DomainException('of the work');
        }));
        $this->assertInstanceOf(\DomainException::class, $both->getPrevious());
    }

    public function test_one_of_several_keys_is_enough(): void
    {
        $held = $this->client->lockAll(['a', 'b'])->ttl(2)->acquire();
        $other = $this->client->lock('c')->ttl(2)->acquire();
        $this->emptyRedis();
        $this->loss($held->check(...));
        $this->loss($other->check(...));
        $this->assertNotNull($this->client->lockAll(['a', 'b', 'c'])->wait(5)->acquire());
    }

    public function test_the_other_keys_of_a_lost_lock_are_held_until_its_release(): void
    {
        $held = $this->client->lockAll(['a', 'b'])->ttl(2)->acquire();
        $this->emptyRedis('DEL b');
        $this->loss($held->check(...));
        $this->assertNull($this->client->lock('a')->try());
        $this->thrown(LockLost::class, $held->release(...));
        $this->assertNotNull($this->client->lock('a')->wait(5)->acquire());
    }

    public function test_all_is_lost_with_the_server(): void
    {
        $held = $this->client->lock('k')->acquire();
        $unchecked = $this->client->lock('j')->acquire();
        $this->server->signal(SIGKILL);
        $this->server->end();
        $this->assertStringContainsString('closed the connection', $this->thrown(LockLost::class, $held->check(...))->getMessage());
        $this->thrown(LockLost::class, $held->remaining(...));
        $this->thrown(LockLost::class, $unchecked->release(...));
    }

    public function test_a_server_that_does_not_answer_for_a_second_has_lost_the_lock(): void
    {
        $held = $this->client->lock('k')->acquire();
        $this->server->signal(SIGSTOP);
        $started = microtime(true);
        $this->thrown(LockLost::class, $held->remaining(...));
        $this->assertGreaterThan(0.9, microtime(true) - $started);
        $this->assertLessThan(10, microtime(true) - $started);
        // It was given back, so the server that goes on does not keep it.
        $this->server->signal(SIGCONT);
        $this->assertSame(1, $this->client->lock('k')->wait(10)->run(fn () => 1));
        $this->thrown(LockLost::class, $held->check(...));
    }

    public function test_a_lock_is_lost_before_the_time_is_over_that_was_told(): void
    {
        $held = $this->client->lock('k')->ttl(4)->acquire();
        $this->server->signal(SIGSTOP);
        $until = microtime(true) + 4;
        $this->loss(function () use ($held, &$last) {
            $held->check();
            $last = microtime(true);
        });
        $this->assertGreaterThan(0, $last);
        $this->assertLessThan($until, $last);
    }

    public function test_a_request_to_a_server_that_does_not_answer_ends(): void
    {
        $this->client->lock('k')->acquire()->release();
        $this->server->signal(SIGSTOP);
        $started = microtime(true);
        $this->thrown(Unreachable::class, fn () => $this->client->lock('k')->acquire());
        $this->assertGreaterThan(9, microtime(true) - $started);
        $this->assertLessThan(25, microtime(true) - $started);
        $started = microtime(true);
        $this->thrown(Unreachable::class, fn () => Client::connect("$this->dir/server.sock"));
        $this->assertLessThan(15, microtime(true) - $started);
        // The request is withdrawn, so the server that goes on does not keep the lock for nobody.
        $this->server->signal(SIGCONT);
        $this->assertSame(1, $this->client->lock('k')->wait(10)->run(fn () => 1));
    }

    public function test_a_long_wait_is_no_silence(): void
    {
        $held = $this->client->lock('k')->acquire();
        $started = microtime(true);
        $busy = $this->thrown(\Fencelock\LockBusy::class, fn () => $this->client->lock('k')->wait(12)->acquire());
        $this->assertGreaterThanOrEqual(12, microtime(true) - $started);
        $this->assertGreaterThanOrEqual(12, $busy->waited);
        $held->check();
    }

    public function test_a_loss_that_nobody_asked_for_is_logged(): void
    {
        $script = $this->script('
            $client = Client::connect("$dir/server.sock");
            $held = $client->lock("k")->ttl(2)->acquire();
            $other = $client->lock("other")->ttl(2)->acquire();
            echo "held\n";
            fgets(STDIN);
            $lost = new ReflectionProperty(Fencelock\Connection::class, "lost");
            while (count($lost->getValue($client->connection())) < 2) {
                usleep(5000);
            }
            try {
                $other->check();
            } catch (LockLost) {
            }
            unset($held, $other);');
        $this->assertSame('held', $script->line());
        $this->emptyRedis();
        $script->tell('go on');
        $this->assertSame(0, $script->end());
        $this->assertStringContainsString('the lock k was lost before its release', $script->errors());
        $this->assertStringNotContainsString('the lock other', $script->errors());
    }
}
