import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * java Worker lock|fair-lock [version]
 *
 * <p>Redisson's locks, one thread for each task; ../README.md describes a worker.
 */
public final class Worker implements Runnable {
    private final Job job;
    private final int number;
    private final RedissonClient client;
    private final long counted;
    private final long end;

    private long grants;
    private long refused;
    private long errors;
    private String firstError;
    private boolean soldOut;
    private final Map<Long, Long> waits = new TreeMap<>();

    private Worker(Job job, int number, RedissonClient client, long counted, long end) {
        this.job = job;
        this.number = number;
        this.client = client;
        this.counted = counted;
        this.end = end;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 1 && arguments[1].equals("version")) {
            System.out.println("Redisson " + Redisson.class.getPackage().getImplementationVersion() + ", Java " + Runtime.version());
            return;
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        Job job = Job.parse(input.readLine(), arguments[0]);
        Config config = new Config();
        config.setLockWatchdogTimeout(job.ttlMs).useSingleServer().setAddress(job.url);
        RedissonClient client = Redisson.create(config);
        System.out.println("ready");
        input.readLine();
        long counted = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(job.warmUpMs);
        long end = counted + TimeUnit.MILLISECONDS.toNanos(job.spanMs);
        List<Worker> workers = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < job.tasks; number++) {
            Worker worker = new Worker(job, number, client, counted, end);
            workers.add(worker);
            threads.add(new Thread(worker));
        }
        threads.forEach(Thread::start);
        if (job.isSale()) {
            // A started sale must be completed; it may also end early.
            long patience = end + TimeUnit.SECONDS.toNanos(5);
            for (Thread thread : threads) {
                thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(patience - System.nanoTime())));
            }
        } else {
            TimeUnit.NANOSECONDS.sleep(end - System.nanoTime());
        }
        System.out.println(Log.of(workers));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void run() {
        while (System.nanoTime() < end && !soldOut) {
            try {
                turn();
            } catch (Exception failure) {
                synchronized (this) {
                    errors++;
                    firstError = firstError == null ? String.valueOf(failure) : firstError;
                }
                pause();
            }
        }
    }

    private void turn() throws Exception {
        String key = key();
        // Its lease has the default of the client, and is renewed, as without a TTL in the call.
        RLock lock = job.kind.equals("fair-lock") ? client.getFairLock(key) : client.getLock(key);
        long asked = System.nanoTime();
        // After the end, so that a waiting task does not give up earlier.
        while (!lock.tryLock(end - System.nanoTime() + TimeUnit.SECONDS.toNanos(1), TimeUnit.NANOSECONDS)) {
            if (System.nanoTime() >= end) {
                return;
            }
            synchronized (this) {
                refused++;
            }
        }
        try {
            long granted = System.nanoTime();
            if (job.isSale() && granted <= end) {
                soldOut = !sell(key);
            }
            if (asked >= counted && granted <= end) {
                synchronized (this) {
                    long wait = rounded((granted - asked) / 1000);
                    waits.merge(wait, 1L, Long::sum);
                    grants++;
                }
            }
        } finally {
            lock.unlock();
        }
    }

    private String key() {
        switch (job.workload) {
            case "uncontended":
                return job.key + ":" + job.process + ":" + number;
            case "many-keys":
                return job.key + ":" + ThreadLocalRandom.current().nextInt(job.keys);
            default:
                return job.key;
        }
    }

    /** Returns whether an item was left. Only the lock prevents other sales between reading and writing. */
    private boolean sell(String key) {
        RBucket<String> bucket = client.getBucket(key + ":stock", StringCodec.INSTANCE);
        long stock = Long.parseLong(bucket.get());
        if (stock > 0) {
            bucket.set(Long.toString(stock - 1));
            client.<String>getList(key + ":sold", StringCodec.INSTANCE).add(Long.toString(stock));
        }
        return stock > 0;
    }

    /** Rounds to three digits. */
    private static long rounded(long micros) {
        long unit = 1;
        for (int digits = Long.toString(micros).length(); digits > 3; digits--) {
            unit *= 10;
        }
        return (micros + unit / 2) / unit * unit;
    }

    private static void pause() {
        try {
            Thread.sleep(10);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The results of all workers so far; one may be in its last iteration. */
    private record Log(List<Worker> workers) {
        static String of(List<Worker> workers) {
            List<String> tasks = new ArrayList<>();
            Map<Long, Long> all = new TreeMap<>();
            long errors = 0;
            String first = null;
            for (Worker worker : workers) {
                synchronized (worker) {
                    tasks.add("{\"grants\":" + worker.grants + ",\"refused\":" + worker.refused + "}");
                    worker.waits.forEach((wait, count) -> all.merge(wait, count, Long::sum));
                    errors += worker.errors;
                    first = first == null ? worker.firstError : first;
                }
            }
            return "{\"tasks\":[" + String.join(",", tasks) + "],\"waits\":" + pairs(all) + ",\"errors\":" + errors
                + ",\"first_error\":" + (first == null ? "null" : quoted(first)) + "}";
        }

        private static String pairs(Map<Long, Long> waits) {
            List<String> pairs = new ArrayList<>();
            waits.forEach((wait, count) -> pairs.add("[" + wait + "," + count + "]"));
            return "[" + String.join(",", pairs) + "]";
        }

        private static String quoted(String text) {
            return "\"" + text.replaceAll("[\\p{Cntrl}]", " ").replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
        }
    }

    /** The fields are numbers and plain strings, so that no JSON library is needed. */
    private record Job(String url, String workload, String key, int keys, int tasks, int process, long warmUpMs, long spanMs,
            long ttlMs, String kind) {
        boolean isSale() {
            return workload.equals("flash-sale");
        }

        static Job parse(String line, String kind) {
            return new Job(text(line, "url"), text(line, "workload"), text(line, "key"), number(line, "keys"), number(line, "tasks"),
                number(line, "process"), number(line, "warm_up_ms"), number(line, "span_ms"), number(line, "ttl_ms"), kind);
        }

        private static String text(String line, String name) {
            return member(line, name, "\"([^\"\\\\]*)\"");
        }

        private static int number(String line, String name) {
            String found = member(line, name, "(\\d+)");
            if (found == null) {
                throw new IllegalArgumentException("the job has no number " + name);
            }
            return Integer.parseInt(found);
        }

        private static String member(String line, String name, String value) {
            var matcher = java.util.regex.Pattern.compile("\"" + name + "\"\\s*:\\s*" + value).matcher(line);
            return matcher.find() ? matcher.group(1) : null;
        }
    }
}
