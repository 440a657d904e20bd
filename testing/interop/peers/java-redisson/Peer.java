import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/**
 * java Peer PORT
 *
 * <p>Redisson's lock, a hash under the key: it and fencelock exclude each other, and share nothing else. For
 * a string, it returns a type error, which also refuses the lock.
 */
public final class Peer {
    private static final long PAUSE_MS = 5;

    private final RedissonClient client;
    private RLock held;

    private Peer(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] ports) throws Exception {
        Config config = new Config();
        config.useSingleServer()
            .setAddress("redis://127.0.0.1:" + ports[0])
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(4)
            .setSubscriptionConnectionMinimumIdleSize(1);
        RedissonClient client = Redisson.create(config);
        Peer peer = new Peer(client);
        System.out.println("ready Java " + Runtime.version() + ", Redisson " + Redisson.class.getPackage().getImplementationVersion());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String said;
            try {
                said = peer.answer(line.split(" "));
            } catch (RuntimeException | InterruptedException failure) {
                said = "error " + String.valueOf(failure.getMessage()).replace('\n', ' ');
            }
            System.out.println(said);
        }
        client.shutdown();
    }

    private String answer(String[] words) throws InterruptedException {
        switch (words[0]) {
            case "try":
                return acquire(words[1], Long.parseLong(words[2]), 0) ? "held" : "busy";
            case "lock":
                return acquire(words[1], Long.parseLong(words[2]), Long.parseLong(words[3])) ? "held" : "busy";
            case "unlock":
                return release() ? "freed" : "lost";
            default:
                return "error no such word: " + words[0];
        }
    }

    private boolean acquire(String key, long ttlMs, long waitMs) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        while (!attempt(key, ttlMs)) {
            if (System.nanoTime() >= end) {
                return false;
            }
            Thread.sleep(PAUSE_MS);
        }
        return true;
    }

    private boolean attempt(String key, long ttlMs) throws InterruptedException {
        RLock lock = client.getLock(key);
        try {
            if (!lock.tryLock(0, ttlMs, TimeUnit.MILLISECONDS)) {
                return false;
            }
        } catch (RedisException failure) {
            if (!isOfAnotherType(failure)) {
                throw failure;
            }
            return false;
        }
        held = lock;
        return true;
    }

    private static boolean isOfAnotherType(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (String.valueOf(cause.getMessage()).contains("WRONGTYPE")) {
                return true;
            }
        }
        return false;
    }

    private boolean release() {
        try {
            held.unlock();
            return true;
        } catch (IllegalMonitorStateException notOurs) {
            return false;
        }
    }
}
