<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Client;
use Fencelock\LockLost;
use Fencelock\Symfony\FencelockStore;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\UnserializableKeyException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

/** The store in the real symfony/lock. */
final class SymfonyTest extends ServerTestCase
{
    protected function setUp(): void
    {
        parent::setUp();
        $this->server($this->store());
    }

    private function factory(?float $wait = null): LockFactory
    {
        return new LockFactory(new FencelockStore(Client::connect("$this->dir/server.sock"), $wait));
    }

    public function test_a_lock_excludes_others_until_it_is_released(): void
    {
        $lock = $this->factory()->createLock('invoice', 30);
        $other = $this->factory()->createLock('invoice');
        $this->assertTrue($lock->acquire());
        $this->assertTrue($lock->acquire());
        $this->assertTrue($lock->isAcquired());
        $this->assertFalse($other->acquire());
        $this->assertFalse($other->isAcquired());
        $lock->refresh();
        $lock->release();
        $this->assertFalse($lock->isAcquired());
        $this->assertTrue($other->acquire());
        $this->thrown(LockConflictedException::class, fn () => $lock->refresh());
    }

    public function test_a_lock_outlives_its_ttl_while_its_process_lives(): void
    {
        $lock = $this->factory()->createLock('invoice', 0.2);
        $lock->acquire();
        usleep(400000);
        $this->assertTrue($lock->isAcquired());
        $this->assertFalse($lock->isExpired());
        $this->assertFalse($this->factory()->createLock('invoice')->acquire());
    }

    public function test_a_blocking_lock_waits_at_the_server(): void
    {
        $script = $this->script('$held = Client::connect("$dir/server.sock")->lock("invoice")->acquire(); echo "held\n"; fgets(STDIN); usleep(300000); $held->release();');
        $script->line();
        $lock = $this->factory()->createLock('invoice');
        $this->assertFalse($lock->acquire());
        $script->tell('release');
        $this->assertTrue($lock->acquire(true));
        $limited = $this->factory(0.2)->createLock('invoice');
        $this->assertStringContainsString('invoice is held by', $this->thrown(LockConflictedException::class, fn () => $limited->acquire(true))->getMessage());
    }

    public function test_readers_share_a_lock(): void
    {
        [$one, $two, $writer] = [$this->factory()->createLock('k'), $this->factory()->createLock('k'), $this->factory()->createLock('k')];
        $this->assertTrue($one->acquireRead());
        $this->assertTrue($two->acquireRead(true));
        $this->assertFalse($writer->acquire());
        $this->assertFalse($one->acquire());
        $this->assertTrue($one->isAcquired());
        $one->release();
        $two->release();
        $this->assertTrue($writer->acquire());
        $this->assertTrue($writer->acquireRead());
        $this->assertFalse($one->acquireRead());
    }

    public function test_a_lock_is_released_with_its_object_and_not_by_another_one(): void
    {
        $lock = $this->factory()->createLock('k');
        $lock->acquire();
        $other = $this->factory()->createLock('k');
        $other->release();
        unset($other);
        $this->assertTrue($lock->isAcquired());
        unset($lock);
        $this->assertTrue($this->factory(5)->createLock('k')->acquire(true));
    }

    public function test_a_loss_is_seen(): void
    {
        $lock = $this->factory()->createLock('k');
        $lock->acquire();
        $this->emptyRedis();
        $e = $this->thrown(LockReleasingException::class, fn () => $lock->release());
        $this->assertInstanceOf(LockLost::class, $e->getPrevious());
        $lock->acquire();
        $this->emptyRedis();
        $this->until(fn () => !$lock->isAcquired());
        $this->thrown(LockConflictedException::class, fn () => $lock->refresh(1));
    }

    public function test_a_key_that_is_held_cannot_be_serialized(): void
    {
        $key = new Key('k');
        $lock = $this->factory()->createLockFromKey($key);
        $lock->acquire();
        $this->thrown(UnserializableKeyException::class, fn () => serialize($key));
    }
}
