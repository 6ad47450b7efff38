/* Stands between a process and its disk: records every change of the ledger's files in order, or
 * lets one call fail. Loaded by LD_PRELOAD into a child of the tests.
 *
 *   DISK_LOG=FILE                      records; format in disk.rs
 *   DISK_FAIL=CALL:SUFFIX:N:ERRNO      the Nth CALL (write, sync) on a file whose name ends with
 *                                      SUFFIX fails, and every later one too
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -2;
static char fail_call[16], fail_suffix[64];
static long fail_at, fail_errno, fail_seen;

static void setup(void)
{
    if (log_fd != -2)
        return;
    const char *log = getenv("DISK_LOG");
    log_fd = log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    const char *fail = getenv("DISK_FAIL");
    if (fail && sscanf(fail, "%15[^:]:%63[^:]:%ld:%ld", fail_call, fail_suffix, &fail_at, &fail_errno) != 4)
        abort();
}

/* The file's name without directories, when it is one of the ledger's; "1" for stdout. */
static int name_of(int fd, char *name, size_t size)
{
    char link[64], target[4096];
    if (fd == 1) {
        snprintf(name, size, "1");
        return 1;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length <= 0)
        return 0;
    target[length] = 0;
    const char *base = strrchr(target, '/');
    base = base ? base + 1 : target;
    if (strncmp(base, "ledger.sqlite", 13) != 0 && strcmp(base, "high-water") != 0)
        return 0;
    snprintf(name, size, "%s", base);
    return 1;
}

static int fails(const char *call, const char *name)
{
    size_t length = strlen(name), suffix = strlen(fail_suffix);
    if (!fail_at || strcmp(call, fail_call) != 0 || length < suffix
        || strcmp(name + length - suffix, fail_suffix) != 0)
        return 0;
    if (++fail_seen < fail_at)
        return 0;
    errno = (int)fail_errno;
    return 1;
}

static void record(char op, const char *name, uint64_t offset, const void *data, uint64_t length)
{
    if (log_fd < 0)
        return;
    unsigned char head[1 + 1 + 8 + 8];
    head[0] = (unsigned char)op;
    head[1] = (unsigned char)strlen(name);
    memcpy(head + 2, &offset, 8);
    memcpy(head + 10, &length, 8);
    syscall(SYS_write, log_fd, head, sizeof head);
    syscall(SYS_write, log_fd, name, strlen(name));
    if (data)
        syscall(SYS_write, log_fd, data, length);
}

static ssize_t put(int fd, const void *data, size_t length, off_t offset, int at_offset)
{
    char name[256];
    pthread_mutex_lock(&lock);
    setup();
    int ours = name_of(fd, name, sizeof name);
    ssize_t done = -1;
    if (!ours || !fails("write", name)) {
        off_t place = at_offset ? offset : (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
        done = at_offset ? syscall(SYS_pwrite64, fd, data, length, offset)
                         : syscall(SYS_write, fd, data, length);
        if (ours && done > 0)
            record('W', name, fd == 1 ? 0 : (uint64_t)place, data, (uint64_t)done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t write(int fd, const void *data, size_t length) { return put(fd, data, length, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return put(fd, data, length, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) { return put(fd, data, length, offset, 1); }

static int resize(int fd, off_t length)
{
    char name[256];
    pthread_mutex_lock(&lock);
    setup();
    int ours = name_of(fd, name, sizeof name);
    int done = (int)syscall(SYS_ftruncate, fd, length);
    if (ours && done == 0)
        record('T', name, (uint64_t)length, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int fd, off_t length) { return resize(fd, length); }
int ftruncate64(int fd, off64_t length) { return resize(fd, length); }

static int sync_file(int fd, long call)
{
    char name[256];
    pthread_mutex_lock(&lock);
    setup();
    int ours = name_of(fd, name, sizeof name);
    int done = -1;
    if (!ours || !fails("sync", name)) {
        done = (int)syscall(call, fd);
        if (ours && done == 0)
            record('S', name, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int unlink(const char *path)
{
    pthread_mutex_lock(&lock);
    setup();
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (done == 0 && strncmp(base, "ledger.sqlite", 13) == 0)
        record('U', base, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}
