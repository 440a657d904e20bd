import java.util.ArrayList;
import java.util.List;

/** What the threads of this process hold together; ../README.md describes the list. */
final class Holds {
    private static final int MAX_CHANGES = 20_000;

    private final long counted;
    private final boolean isChecked;
    private final boolean arePermits;
    private final List<String> changes = new ArrayList<>();
    private int exclusive;
    private int others;

    /** Without a limit, the other holders are readers. Exclusive locks alone are not checked. */
    Holds(long counted, int writersPpm, int limit) {
        this.counted = counted;
        this.isChecked = writersPpm >= 0 || limit > 0;
        this.arePermits = limit > 0;
    }

    /** A request has returned, or a release is about to be sent. */
    void change(boolean isExclusive, int difference) {
        if (!isChecked) {
            return;
        }
        synchronized (this) {
            int before = sum();
            if (isExclusive) {
                exclusive += difference;
            } else {
                others += difference;
            }
            long now = System.nanoTime();
            if ((isExclusive || sum() != before) && now >= counted && changes.size() < MAX_CHANGES) {
                changes.add("[" + now / 1000 + "," + exclusive + "," + sum() + "]");
            }
        }
    }

    private int sum() {
        return arePermits ? others : Math.min(others, 1);
    }

    synchronized String list() {
        return "[" + String.join(",", changes) + "]";
    }
}
