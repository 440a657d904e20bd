// Adjusts or stops the wall clock of one process, and nothing else: for tests of servers with wrong clocks.
//
// Loaded with LD_PRELOAD. The file named by FENCELOCK_WALL_CLOCK holds four 64-bit numbers in the machine's byte order:
// the microseconds to add; the time at which the clock is stopped (microseconds since 1970), or 0 if it runs; by how many
// millionths it runs too fast, or 0; and since when (microseconds of the boot clock). A write to the file sets the
// clock immediately. Monotonic clocks are not affected.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting {
    int64_t shift_us, still_us, millionths, since_us;
};

static const volatile struct setting *setting;

static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_setting(void) {
    *(void **)&real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("FENCELOCK_WALL_CLOCK");
    if (path == NULL) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(struct setting), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) setting = page;
}

// The function of the C library, which rarely needs a system call: a busy server reads the clock for every command.
static int read_clock(clockid_t clock, struct timespec *at) {
    return real_clock == NULL ? (int)syscall(SYS_clock_gettime, clock, at) : real_clock(clock, at);
}

static int64_t read_us(clockid_t clock) {
    struct timespec at;
    read_clock(clock, &at);
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

static int64_t wall_us(void) {
    int64_t real_us = read_us(CLOCK_REALTIME);
    if (setting == NULL) return real_us;
    int64_t still_us = setting->still_us;
    if (still_us != 0) return still_us;
    // The rate is written after its start time, and removed before it.
    int64_t millionths = setting->millionths;
    int64_t gained_us = millionths == 0 ? 0 : (read_us(CLOCK_BOOTTIME) - setting->since_us) * millionths / 1000000;
    return real_us + setting->shift_us + gained_us;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return read_clock(clock, at);
    int64_t now = wall_us();
    at->tv_sec = now / 1000000;
    at->tv_nsec = now % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    int64_t now = wall_us();
    at->tv_sec = now / 1000000;
    at->tv_usec = now % 1000000;
    return 0;
}

time_t time(time_t *at) {
    time_t now = (time_t)(wall_us() / 1000000);
    if (at != NULL) *at = now;
    return now;
}
