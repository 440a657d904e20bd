// Resolves one host name for one process, and nothing else: for tests of names whose addresses change.
//
// Loaded with LD_PRELOAD. FENCELOCK_RESOLVER is the name, a colon, and a file with one address in each line, in the order in which
// they are returned. The file is read for each request.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static resolve *real;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    const char *setting = getenv("FENCELOCK_RESOLVER");
    const char *path = setting == NULL ? NULL : strchr(setting, ':');
    size_t length = path == NULL ? 0 : (size_t)(path - setting);
    if (path == NULL || name == NULL || strlen(name) != length || strncmp(name, setting, length) != 0) {
        return real(name, service, hints, found);
    }
    FILE *file = fopen(path + 1, "r");
    if (file == NULL) return EAI_AGAIN;
    char line[64];
    struct addrinfo *all = NULL, **end = &all;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        // freeaddrinfo() frees the whole list.
        if (line[0] == 0 || real(line, service, hints, end) != 0) continue;
        while (*end != NULL) end = &(*end)->ai_next;
    }
    fclose(file);
    *found = all;
    return all == NULL ? EAI_NONAME : 0;
}
