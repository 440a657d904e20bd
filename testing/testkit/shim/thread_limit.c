// Lets one process start no thread, as at the process limit of its user, and nothing else.
//
// Loaded with LD_PRELOAD. While the file named by FENCELOCK_THREAD_LIMIT exists, pthread_create fails with EAGAIN.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    static create *real;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    const char *path = getenv("FENCELOCK_THREAD_LIMIT");
    if (path != NULL && access(path, F_OK) == 0) return EAGAIN;
    return real(thread, attributes, start, argument);
}
