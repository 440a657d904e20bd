import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** How one kind of Redisson's locks is acquired and released. */
interface Holder {
    /** Returns whether it was granted. Only a writer among readers is exclusive. */
    boolean tryAcquire(String key, boolean exclusive, long waitNanos) throws InterruptedException;

    /** Releases what this object holds. */
    void release();

    static Holder of(String kind, RedissonClient client, int limit, long ttlMs) {
        switch (kind) {
            case "lock":
                return new Lock((key, exclusive) -> client.getLock(key));
            case "fair-lock":
                return new Lock((key, exclusive) -> client.getFairLock(key));
            case "read-write":
                return new Lock((key, exclusive) -> {
                    RReadWriteLock lock = client.getReadWriteLock(key);
                    return exclusive ? lock.writeLock() : lock.readLock();
                });
            case "permits":
                return new Permits(client, limit, ttlMs);
            case "semaphore":
                return new Semaphore(client, limit);
            default:
                throw new IllegalArgumentException("unknown kind " + kind);
        }
    }

    /** Which requests are for an exclusive lock. */
    static boolean draw(int writersPpm) {
        return writersPpm < 0 || ThreadLocalRandom.current().nextInt(1_000_000) < writersPpm;
    }

    /** Finds the lock of a key. */
    interface Locks {
        RLock get(String key, boolean exclusive);
    }

    /** Its lease has the default of the client, and is renewed, as without a TTL in the call. */
    final class Lock implements Holder {
        private final Locks locks;
        private RLock held;

        private Lock(Locks locks) {
            this.locks = locks;
        }

        @Override
        public boolean tryAcquire(String key, boolean exclusive, long waitNanos) throws InterruptedException {
            held = locks.get(key, exclusive);
            return held.tryLock(waitNanos, TimeUnit.NANOSECONDS);
        }

        @Override
        public void release() {
            held.unlock();
        }
    }

    /** A permit with a lease, which is not renewed. */
    final class Permits implements Holder {
        private final RedissonClient client;
        private final int limit;
        private final long ttlMs;
        private RPermitExpirableSemaphore semaphore;
        private String permit;

        private Permits(RedissonClient client, int limit, long ttlMs) {
            this.client = client;
            this.limit = limit;
            this.ttlMs = ttlMs;
        }

        @Override
        public boolean tryAcquire(String key, boolean exclusive, long waitNanos) throws InterruptedException {
            if (semaphore == null) {
                semaphore = client.getPermitExpirableSemaphore(key);
                semaphore.trySetPermits(limit);
            }
            permit = semaphore.tryAcquire(TimeUnit.NANOSECONDS.toMillis(waitNanos), ttlMs, TimeUnit.MILLISECONDS);
            return permit != null;
        }

        @Override
        public void release() {
            semaphore.release(permit);
        }
    }

    /** A permit without a lease. */
    final class Semaphore implements Holder {
        private final RedissonClient client;
        private final int limit;
        private RSemaphore semaphore;

        private Semaphore(RedissonClient client, int limit) {
            this.client = client;
            this.limit = limit;
        }

        @Override
        public boolean tryAcquire(String key, boolean exclusive, long waitNanos) throws InterruptedException {
            if (semaphore == null) {
                semaphore = client.getSemaphore(key);
                semaphore.trySetPermits(limit);
            }
            return semaphore.tryAcquire(waitNanos, TimeUnit.NANOSECONDS);
        }

        @Override
        public void release() {
            semaphore.release();
        }
    }
}
