/* Stands between a process and its disk: records every change of the files in one directory, in
 * order, or lets calls fail. Loaded by LD_PRELOAD into a child of the tests.
 *
 *   DISK_DIR=PATH                      whose files, without a slash at its end
 *   DISK_LOG=FILE                      where to; format in recording_disk.rs
 *   DISK_FAIL=CALL:SUFFIX:N:ERRNO      the Nth CALL (write, sync) on a file whose name ends with
 *                                      SUFFIX fails, and every later one too
 */
#define _GNU_SOURCE
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
    const char *fail = getenv("DISK_FAIL");
    if (fail && sscanf(fail, "%15[^:]:%63[^:]:%ld:%ld", fail_call, fail_suffix, &fail_at, &fail_errno) != 4)
        abort();
    const char *log = getenv("DISK_LOG");
    log_fd = log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
}

/* The name of a path in DISK_DIR, "." for the directory itself, or nothing. */
static const char *inside(const char *path)
{
    const char *directory = getenv("DISK_DIR");
    size_t length = directory ? strlen(directory) : 0;
    if (!length || strncmp(path, directory, length) != 0)
        return NULL;
    if (!path[length])
        return ".";
    return path[length] == '/' ? path + length + 1 : NULL;
}

static const char *name_of(int fd, char *target, size_t size)
{
    char link[64];
    if (fd == 1)
        return "1";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, size - 1);
    if (length <= 0)
        return NULL;
    target[length] = 0;
    return inside(target);
}

static int fails(const char *call, const char *name)
{
    setup();
    if (!fail_at || !name || strcmp(call, fail_call) != 0)
        return 0;
    size_t length = strlen(name), suffix = strlen(fail_suffix);
    if (length < suffix || strcmp(name + length - suffix, fail_suffix) != 0)
        return 0;
    if (++fail_seen < fail_at)
        return 0;
    errno = (int)fail_errno;
    return 1;
}

static void record(char op, const char *name, uint64_t offset, const void *data, uint64_t length)
{
    setup();
    if (log_fd < 0 || !name)
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
    char target[4096];
    pthread_mutex_lock(&lock);
    const char *name = name_of(fd, target, sizeof target);
    if (fails("write", name)) {
        pthread_mutex_unlock(&lock);
        return -1;
    }
    off_t place = at_offset ? offset : (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    ssize_t done = at_offset ? syscall(SYS_pwrite64, fd, data, length, offset)
                             : syscall(SYS_write, fd, data, length);
    if (done > 0)
        record('W', name, fd == 1 ? 0 : (uint64_t)place, data, (uint64_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t write(int fd, const void *data, size_t length) { return put(fd, data, length, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return put(fd, data, length, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) { return put(fd, data, length, offset, 1); }

static int marked(long call, char op, int fd, off_t length)
{
    char target[4096];
    pthread_mutex_lock(&lock);
    const char *name = name_of(fd, target, sizeof target);
    int done = -1;
    if (op == 'T')
        done = (int)syscall(call, fd, length);
    else if (!fails("sync", name))
        done = (int)syscall(call, fd);
    if (done == 0)
        record(op, name, (uint64_t)length, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int fd, off_t length) { return marked(SYS_ftruncate, 'T', fd, length); }
int ftruncate64(int fd, off64_t length) { return marked(SYS_ftruncate, 'T', fd, length); }
int fsync(int fd) { return marked(SYS_fsync, 'S', fd, 0); }
int fdatasync(int fd) { return marked(SYS_fdatasync, 'S', fd, 0); }

int unlink(const char *path)
{
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (done == 0)
        record('U', inside(path), 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *from, const char *to)
{
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    const char *name = inside(to);
    if (done == 0 && name)
        record('R', inside(from), 0, name, strlen(name));
    pthread_mutex_unlock(&lock);
    return done;
}
