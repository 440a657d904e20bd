// Shifts the wall clock of one process, and nothing else: for tests of what a server does when its clock is set.
//
// Loaded with LD_PRELOAD. The file named by FENCELOCK_WALL_CLOCK holds one 64-bit number in the machine's byte order: the
// microseconds to add. Whoever writes to the file shifts the clock at once. Monotonic clocks go on as they are.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_us;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("FENCELOCK_WALL_CLOCK");
    if (path == NULL) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) shift_us = page;
}

// The system call itself: asking the C library would come back here.
static int read_clock(clockid_t clock, struct timespec *at) { return (int)syscall(SYS_clock_gettime, clock, at); }

static int64_t wall_us(void) {
    struct timespec at;
    read_clock(CLOCK_REALTIME, &at);
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000 + (shift_us == NULL ? 0 : *shift_us);
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
