<?php

declare(strict_types=1);

namespace Fencelock\Tests;

use Fencelock\Laravel\FencelockServiceProvider;
use Fencelock\Laravel\FencelockStore;
use Fencelock\LockBusy;
use Fencelock\LockLost;
use Illuminate\Cache\CacheManager;
use Illuminate\Cache\Repository;
use Illuminate\Config\Repository as Config;
use Illuminate\Container\Container;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Queue\Middleware\WithoutOverlapping;

/** The store in the real illuminate/cache. */
final class LaravelTest extends ServerTestCase
{
    protected function setUp(): void
    {
        parent::setUp();
        $this->server($this->store());
    }

    /** The default cache of an application of its own, as another process has one. */
    private function cache(): Repository
    {
        $app = new class () extends Container {
            public function booting(callable $callback): void
            {
                $callback();
            }
        };
        $app->instance('config', new Config(['cache' => ['default' => 'locks', 'prefix' => 'app', 'stores' => [
            'locks' => ['driver' => 'fencelock', 'store' => 'values', 'connect' => "$this->dir/server.sock"],
            'values' => ['driver' => 'array'],
        ]]]));
        $app->singleton('cache', fn ($app) => new CacheManager($app));
        (new FencelockServiceProvider($app))->register();
        Container::setInstance($app);
        $app->instance(\Illuminate\Contracts\Cache\Repository::class, $app->make('cache')->store());
        return $app->make('cache')->store();
    }

    protected function tearDown(): void
    {
        Container::setInstance(null);
        gc_collect_cycles();
        parent::tearDown();
    }

    public function test_a_lock_excludes_others_until_it_is_released(): void
    {
        $lock = $this->cache()->lock('invoice');
        $other = $this->cache()->lock('invoice');
        $this->assertTrue($lock->get());
        $this->assertIsInt($lock->token());
        $this->assertFalse($other->get());
        $this->assertFalse($lock->get());
        $this->assertFalse($other->release());
        $lock->check();
        $this->assertTrue($lock->release());
        $this->assertFalse($lock->release());
        $this->assertTrue($other->get());
        $this->thrown(LockLost::class, $lock->check(...));
    }

    public function test_get_with_a_callback_releases(): void
    {
        $cache = $this->cache();
        $this->assertSame('done', $cache->lock('k')->get(function () use ($cache): string {
            $this->assertFalse($cache->lock('k')->get());
            return 'done';
        }));
        $this->assertTrue($cache->lock('k')->get());
    }

    public function test_a_lock_without_a_variable_lasts_for_its_seconds(): void
    {
        $cache = $this->cache();
        $this->assertTrue($cache->lock('k', 1)->get());
        gc_collect_cycles();
        $this->assertFalse($this->cache()->lock('k')->get());
        $this->assertTrue($this->cache()->lock('k')->block(10));
    }

    public function test_locks_that_are_over_are_forgotten(): void
    {
        $cache = $this->cache();
        foreach (range(1, 20) as $number) {
            $cache->lock("k$number", 1)->get();
        }
        $held = new \ReflectionProperty(FencelockStore::class, 'held');
        $this->until(function () use ($cache, $held): bool {
            $cache->lock('other')->get(fn () => null);
            return $held->getValue($cache->getStore()) === [];
        });
        $this->assertTrue($cache->lock('k1')->get());
    }

    public function test_block_waits_at_the_server(): void
    {
        $script = $this->script('$held = Client::connect("$dir/server.sock")->lock("k")->acquire(); echo "held\n"; fgets(STDIN); $held->release();');
        $script->line();
        $cache = $this->cache();
        $timeout = $this->thrown(LockTimeoutException::class, fn () => $cache->lock('k')->block(1));
        $this->assertInstanceOf(LockBusy::class, $timeout->getPrevious());
        $script->tell('release');
        $this->assertSame('done', $cache->lock('k')->block(30, fn () => 'done'));
        $this->assertTrue($cache->lock('k')->get());
    }

    public function test_a_lock_is_restored_by_its_owner_in_its_process(): void
    {
        $cache = $this->cache();
        $lock = $cache->lock('k', 30);
        $lock->get();
        $this->assertFalse($cache->restoreLock('k', 'somebody')->release());
        $this->assertFalse($this->cache()->restoreLock('k', $lock->owner())->release());
        $restored = $cache->restoreLock('k', $lock->owner());
        $this->assertSame($lock->token(), $restored->token());
        $this->assertTrue($restored->release());
        $this->assertTrue($this->cache()->lock('k')->get());
    }

    public function test_force_release_ends_the_lock_of_this_process_only(): void
    {
        [$cache, $other] = [$this->cache(), $this->cache()];
        $cache->lock('k')->get();
        $busy = $this->thrown(LockBusy::class, fn () => $other->lock('k')->forceRelease());
        $this->assertStringContainsString('fencelock break', $busy->getMessage());
        $cache->lock('k')->forceRelease();
        $other->lock('k')->forceRelease();
        $this->assertTrue($other->lock('k')->get());
    }

    public function test_a_lock_tells_whether_it_is_held_here_and_by_anybody(): void
    {
        [$lock, $other] = [$this->cache()->lock('k'), $this->cache()->lock('k', 30)];
        $this->assertSame([false, false, false], [$lock->isLocked(), $lock->refresh(), $other->isLocked()]);
        $lock->get();
        $this->assertSame([true, true, true], [$lock->isLocked(), $lock->refresh(), $other->isLocked()]);
        $lock->release();
        $this->assertSame([false, false], [$lock->refresh(), $other->isLocked()]);
        $other->get();
        $this->assertSame([true, false], [$lock->isLocked(), $lock->refresh()]);
        $this->assertStringContainsString('30 seconds', $this->thrown(\LogicException::class, fn () => $other->refresh(60))->getMessage());
    }

    public function test_a_loss_is_thrown_at_the_release(): void
    {
        $cache = $this->cache();
        $this->thrown(LockLost::class, fn () => $cache->lock('k')->get(fn () => $this->emptyRedis()));
        $this->thrown(LockLost::class, fn () => $cache->lock('k')->block(5, fn () => $this->emptyRedis()));
        $lock = $cache->lock('k');
        $lock->get();
        $this->emptyRedis();
        $this->loss($lock->check(...));
        $this->thrown(LockLost::class, $lock->release(...));
        $this->assertTrue($lock->get());
    }

    public function test_jobs_without_overlapping_exclude_each_other(): void
    {
        $job = new LaravelJob();
        $this->cache();
        $ran = [];
        (new WithoutOverlapping('order'))->handle($job, function () use ($job, &$ran): void {
            $ran[] = 'first';
            $this->cache();
            (new WithoutOverlapping('order', 7))->handle($job, function () use (&$ran): void {
                $ran[] = 'overlap';
            });
        });
        (new WithoutOverlapping('order'))->handle($job, function () use (&$ran): void {
            $ran[] = 'second';
        });
        $this->assertSame([['first', 'second'], [7]], [$ran, $job->released]);
    }

    public function test_values_are_kept_in_the_other_store(): void
    {
        $cache = $this->cache();
        $cache->put('a', 1, 60);
        $this->assertSame(1, $cache->get('a'));
        $this->assertSame(3, $cache->increment('a', 2));
        $this->assertSame(2, $cache->decrement('a'));
        $this->assertSame('made', $cache->remember('b', 60, fn () => 'made'));
        $this->assertSame(['a' => 2, 'b' => 'made'], $cache->many(['a', 'b']));
        $cache->putMany(['c' => 4], 60);
        $cache->forever('d', 5);
        $this->assertTrue($cache->forget('c'));
        $this->assertSame(['c' => null, 'd' => 5], $cache->many(['c', 'd']));
        $cache->flush();
        $this->assertNull($cache->get('a'));
    }
}

/** What the middleware needs of a job. */
final class LaravelJob
{
    /** @var list<int> */
    public array $released = [];

    public function release(int $delay): void
    {
        $this->released[] = $delay;
    }
}
