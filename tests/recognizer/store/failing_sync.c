/* Preloaded: fsync and fdatasync of a file whose name ends in "-wal" fail while the file FAIL_SYNC names exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int file) {
    char link[64], name[4096];
    const char *flag = getenv("FAIL_SYNC");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (flag == NULL || length < 4 || access(flag, F_OK) != 0) return 0;
    name[length] = 0;
    return strcmp(name + length - 4, "-wal") == 0;
}

static int sync_with(const char *call, int file) {
    if (fails(file)) {
        errno = EIO;
        return -1;
    }
    return ((int (*)(int))dlsym(RTLD_NEXT, call))(file);
}

int fsync(int file) { return sync_with("fsync", file); }
int fdatasync(int file) { return sync_with("fdatasync", file); }
