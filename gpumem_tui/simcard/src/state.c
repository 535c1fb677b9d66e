/* The state file: devices, processes, bytes, settings. See simcard.h. */
#define _GNU_SOURCE
#include "simcard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC (0x53494d4341524431ull + sizeof(struct sc_state)) /* SIMCARD1 */

static const char *const setting_names[] = {
#define X(name, value) #name,
    SC_SETTINGS(X)
#undef X
};
static const double setting_defaults[] = {
#define X(name, value) value,
    SC_SETTINGS(X)
#undef X
};

static struct sc_state *shared;
static double overrides[SC_SETTING_COUNT]; /* NaN where there is none */
static int own_pid;
static uint64_t own_start;

/* "24G" -> bytes; also plain numbers. */
static double parse_number(const char *text) {
    char *end;
    double value = strtod(text, &end);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    return unit ? value * pow(1024, unit - units + 1) : value;
}

uint64_t sc_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- the file ------------------------------------------------------------- */

static void make_mutex(struct sc_state *s) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&s->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

/* All but the magic and the mutex, which a monitor may be waiting for. */
static void make_machine(struct sc_state *s, const char *devices, const char *name, const char *cc) {
    size_t kept = offsetof(struct sc_state, device_count);
    memset((char *)s + kept, 0, sizeof *s - kept);
    memset(s->peak, 0, sizeof s->peak);
    s->head_version = 3;
    memcpy(s->settings, setting_defaults, sizeof setting_defaults);
    snprintf(s->name, sizeof s->name, "%s", name);
    sscanf(cc, "%u.%u", &s->cc_major, &s->cc_minor);

    char *copy = strdup(devices), *rest = copy, *part;
    while (copy && (part = strsep(&rest, ",")) && s->device_count < SC_MAX_DEVICES) {
        struct sc_device *d = &s->device[s->device_count++];
        d->total = strtoull(part, NULL, 10);
        d->reserved = d->total / 80; /* about 300 MiB of 24 GiB, as cards have */
        d->reserved &= ~((2ull << 20) - 1);
        d->seen_at = sc_now_ns();
        s->peak[s->device_count - 1].total = d->total;
        s->peak[s->device_count - 1].reserved = d->reserved;
    }
    s->head_devices = s->device_count;
    free(copy);
}

/* Opens and maps a state file that belongs to this user; NULL and errno otherwise. */
static struct sc_state *map_file(const char *path, int flags, int *fd) {
    struct stat st;
    struct sc_state *s = MAP_FAILED;
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (*fd < 0) return NULL;
    if (fstat(*fd, &st)) {
        ;
    } else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        errno = EPERM;
    } else if (flags && st.st_size != sizeof *s && ftruncate(*fd, sizeof *s)) {
        ;
    } else if (flags && (errno = posix_fallocate(*fd, 0, sizeof *s))) {
        ; /* or a full disk would be a bus error, and later */
    } else if (!flags && st.st_size != sizeof *s) {
        errno = EINVAL; /* of another version, or no state file at all */
    } else {
        s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    }
    if (s != MAP_FAILED) return s;
    int kept = errno;
    close(*fd);
    errno = kept;
    return NULL;
}

struct sc_state *sc_attach(const char *path) {
    int fd;
    struct sc_state *s = map_file(path, 0, &fd);
    if (!s) return NULL;
    close(fd);
    if (__atomic_load_n(&s->magic, __ATOMIC_ACQUIRE) == MAGIC) return s;
    munmap(s, sizeof *s);
    errno = EINVAL;
    return NULL;
}

void sc_detach(struct sc_state *s) {
    if (s && s != shared) munmap(s, sizeof *s);
}

const char *sc_state_path(void) {
    const char *path = getenv("SIMCARD_STATE");
    return path ? path : "";
}

/* The machine that SIMCARD_STATE names. Without one this process has no device:
 * a workload's streams are not ours to complain on, and a monitor must not end. */
static struct sc_state *own_machine(void) {
    static struct sc_state nothing;
    struct sc_state *s = *sc_state_path() ? sc_attach(sc_state_path()) : NULL;
    if (s) return s;
    make_mutex(&nothing);
    memcpy(nothing.settings, setting_defaults, sizeof setting_defaults);
    nothing.settings[SC_nvml_init_error] = 9; /* driver not loaded */
    return &nothing;
}

static uint64_t start_time(int pid, char *status) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    char *field = strrchr(text, ')'); /* the name may hold spaces */
    if (!field) return 0;
    field += 2;
    *status = *field;
    for (int i = 3; i < 22 && field; i++) field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

static void learn_self(void) {
    char status;
    own_pid = getpid();
    own_start = start_time(own_pid, &status);
}

static void read_overrides(void) {
    for (int i = 0; i < SC_SETTING_COUNT; i++) {
        char name[64] = "SIMCARD_";
        for (int k = 0; setting_names[i][k]; k++)
            name[8 + k] = setting_names[i][k] >= 'a' ? setting_names[i][k] - 32 : setting_names[i][k];
        const char *text = getenv(name);
        overrides[i] = text && *text ? parse_number(text) : NAN;
    }
}

static void init_once(void) {
    read_overrides();
    learn_self();
    pthread_atfork(NULL, NULL, learn_self);
    shared = own_machine();
}

struct sc_state *sc_state(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
    return shared;
}

/* ---- settings ------------------------------------------------------------- */

double sc_get(enum sc_setting setting) {
    struct sc_state *s = sc_state();
    return isnan(overrides[setting]) ? s->settings[setting] : overrides[setting];
}

int sc_fault_due(enum sc_setting code, enum sc_setting at) {
    int value = (int)sc_get(code);
    if (!value) return 0;
    double from = sc_get(at);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + now.tv_nsec / 1e9 >= from ? value : 0;
}

static int setting_index(const char *name) {
    for (int i = 0; i < SC_SETTING_COUNT; i++)
        if (!strcmp(name, setting_names[i])) return i;
    return -1;
}

int sc_set(struct sc_state *s, const char *name, double value) {
    int i = setting_index(name);
    if (i < 0) return SC_INVALID;
    s->settings[i] = value;
    return SC_OK;
}

/* ---- locking and processes ------------------------------------------------ */

static struct sc_state *lock_machine(struct sc_state *s) {
    if (pthread_mutex_lock(&s->mutex) == EOWNERDEAD) /* its owner was killed */
        pthread_mutex_consistent(&s->mutex);
    return s;
}

static struct sc_state *lock_only(void) { return lock_machine(sc_state()); }

static void reap(struct sc_state *s) {
    for (int i = 0; i < SC_MAX_PROCS; i++) {
        struct sc_proc *p = &s->proc[i];
        if (!p->pid || (p->pid == own_pid && p->start == own_start)) continue;
        char status = 0;
        uint64_t start = start_time(p->pid, &status);
        if (start != p->start || status == 'Z' || status == 'X') p->pid = 0;
    }
}

struct sc_state *sc_lock(void) {
    struct sc_state *s = lock_only();
    reap(s);
    return s;
}

struct sc_state *sc_look(void) {
    static uint64_t reaped_at; /* under the lock */
    struct sc_state *s = lock_only();
    uint64_t now = sc_now_ns();
    if (now - reaped_at > SC_LOOK_NS) {
        reap(s);
        reaped_at = now;
    }
    return s;
}

void sc_unlock(void) { pthread_mutex_unlock(&shared->mutex); }

static struct sc_proc *own_entry(struct sc_state *s, int create) {
    struct sc_proc *unused = NULL;
    for (int i = 0; i < SC_MAX_PROCS; i++) {
        struct sc_proc *p = &s->proc[i];
        if (p->pid == own_pid && p->start == own_start) return p;
        if (!p->pid && !unused) unused = p;
    }
    if (!create) return NULL;
    if (!unused) { /* make room, once */
        reap(s);
        for (int i = 0; i < SC_MAX_PROCS && !unused; i++)
            if (!s->proc[i].pid) unused = &s->proc[i];
        if (!unused) return NULL;
    }
    memset(unused, 0, sizeof *unused);
    snprintf(unused->name, sizeof unused->name, "%s", program_invocation_short_name);
    unused->start = own_start;
    unused->pid = own_pid;
    return unused;
}

/* The driver gives everything back when a process ends; so do we. */
__attribute__((destructor)) static void forget_self(void) {
    if (!shared) return;
    struct sc_state *s = lock_only();
    struct sc_proc *p = own_entry(s, 0);
    if (p) p->pid = 0;
    sc_unlock();
}

/* ---- bytes ---------------------------------------------------------------- */

static uint64_t share(uint64_t bytes, int instance) {
    return instance >= 0 && sc_get(SC_mig) >= 1 ? bytes / (uint64_t)sc_get(SC_mig) : bytes;
}

uint64_t sc_total(int device, int instance) {
    return share(sc_state()->device[device].total, instance);
}

uint64_t sc_reserved(int device, int instance) {
    return share(sc_state()->device[device].reserved, instance);
}

uint64_t sc_used(const struct sc_state *s, int device, int instance) {
    uint64_t sum = 0;
    for (int i = 0; i < SC_MAX_PROCS; i++) {
        const struct sc_usage *u = &s->proc[i].use[device];
        if (s->proc[i].pid && (instance < 0 || u->instance == instance)) sum += u->context + u->bytes;
    }
    return sum;
}

static int fits(struct sc_state *s, int device, int instance, uint64_t bytes) {
    uint64_t limit = sc_total(device, instance) - sc_reserved(device, instance);
    if (sc_used(s, device, instance) + bytes <= limit) return 1;
    reap(s); /* perhaps a dead process still stands there */
    int result = sc_used(s, device, instance) + bytes <= limit;
    if (!result) s->peak[device].refused++;
    return result;
}

static void note_peak(struct sc_state *s, int device) {
    uint64_t used = sc_used(s, device, -1);
    struct sc_peak *peak = &s->peak[device];
    if (used <= peak->used) return;
    peak->used = used;
    peak->outside = peak->processes = 0;
    for (int i = 0; i < SC_MAX_PROCS; i++) {
        const struct sc_usage *u = &s->proc[i].use[device];
        if (!s->proc[i].pid || !u->has_context) continue;
        peak->outside += u->context;
        peak->processes++;
    }
}

void sc_note_convolution(int device, uint64_t bytes) {
    struct sc_state *s = lock_only();
    if (bytes > s->peak[device].convolution) s->peak[device].convolution = bytes;
    sc_unlock();
}

void sc_note_grouped(int device) {
    __atomic_add_fetch(&sc_state()->peak[device].grouped, 1, __ATOMIC_RELAXED);
}

int sc_charge(int device, int instance, int64_t bytes) {
    struct sc_state *s = lock_only();
    int result = bytes > 0 ? SC_OUT_OF_MEMORY : SC_OK;
    struct sc_proc *p = own_entry(s, bytes > 0);
    if (p && bytes <= 0) {
        uint64_t back = (uint64_t)-bytes;
        p->use[device].bytes -= back < p->use[device].bytes ? back : p->use[device].bytes;
    } else if (p && fits(s, device, instance, (uint64_t)bytes)) {
        p->use[device].bytes += (uint64_t)bytes;
        p->use[device].instance = instance;
        note_peak(s, device);
        result = SC_OK;
    }
    sc_unlock();
    return result;
}

int sc_eager(void) {
    const char *loading = getenv("CUDA_MODULE_LOADING");
    return loading && !strcmp(loading, "EAGER");
}

int sc_context(int device, int instance) {
    struct sc_state *s = lock_only();
    int result = SC_OK;
    struct sc_proc *p = own_entry(s, 1);
    uint64_t bytes = (uint64_t)(sc_get(SC_context_bytes) + (sc_eager() ? sc_get(SC_cudnn_bytes) : 0));
    if (!p || (!p->use[device].has_context && !fits(s, device, instance, bytes))) {
        result = SC_OUT_OF_MEMORY;
    } else if (!p->use[device].has_context) {
        p->use[device].has_context = 1;
        p->use[device].context = bytes;
        p->use[device].instance = instance;
        note_peak(s, device);
    }
    sc_unlock();
    return result;
}

int sc_grow_context(int device, uint64_t bytes) {
    struct sc_state *s = lock_only();
    int result = SC_OUT_OF_MEMORY;
    struct sc_proc *p = own_entry(s, 1);
    if (p && fits(s, device, p->use[device].instance, bytes)) {
        p->use[device].context += bytes;
        note_peak(s, device);
        result = SC_OK;
    }
    sc_unlock();
    return result;
}

int sc_has_context(int device) {
    struct sc_state *s = lock_only();
    struct sc_proc *p = own_entry(s, 0);
    int result = p && p->use[device].has_context;
    sc_unlock();
    return result;
}

void sc_drop_context(int device) {
    struct sc_state *s = lock_only();
    struct sc_proc *p = own_entry(s, 0);
    if (p) memset(&p->use[device], 0, sizeof p->use[device]);
    sc_unlock();
}

/* ---- identity and telemetry ------------------------------------------------ */

void sc_uuid_bytes(int device, int instance, unsigned char out[16]) {
    static const unsigned char base[16] = {0x51, 0x3c, 0xa4, 0xd0, 0x5e, 0xed, 0x40, 0x00, 0x80};
    memcpy(out, base, 16);
    out[14] = (unsigned char)(instance + 1);
    out[15] = (unsigned char)device;
}

void sc_uuid_string(int device, int instance, char *out, size_t size) {
    unsigned char b[16];
    char text[64];
    int n = snprintf(text, sizeof text, instance < 0 ? "GPU-" : "MIG-");
    sc_uuid_bytes(device, instance, b);
    for (int i = 0; i < 16; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
    snprintf(out, size, "%s", text);
}

int sc_pci_bus(int device) { return 0x11 + device; }

/* Busy time since the last look, at least 100 ms ago, as a share of that time. */
uint32_t sc_utilization(int device) {
    double fixed = sc_get(SC_utilization);
    if (fixed >= 0) return (uint32_t)fixed;
    struct sc_state *s = lock_only();
    struct sc_device *d = &s->device[device];
    uint64_t now = sc_now_ns(), span = now - d->seen_at;
    if (span > 100000000ull) {
        uint64_t busy = d->busy_ns - d->seen_busy_ns;
        if (!busy) busy = (d->launches - d->seen_launches) * 10000; /* 10 us each */
        uint64_t percent = busy * 100 / span;
        d->utilization = percent > 100 ? 100 : (uint32_t)percent;
        d->seen_launches = d->launches, d->seen_busy_ns = d->busy_ns, d->seen_at = now;
    }
    uint32_t result = d->utilization;
    sc_unlock();
    return result;
}

/* ---- for those who set the machine up, and look at it ------------------------- */

/* Makes the machine, or makes it anew. SC_NOT_READY: processes use it; errno otherwise. */
int sc_create(const char *path, const char *devices, const char *name, const char *cc) {
    int fd;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct sc_state *s = map_file(path, O_CREAT, &fd);
    if (!s) return SC_INVALID;
    int result = fcntl(fd, F_SETLKW, &lock) ? SC_INVALID : SC_OK;
    if (!result && s->magic != MAGIC) { /* new, or of another version: nobody can be in it */
        make_mutex(s);
        make_machine(s, devices, name, cc);
        __atomic_store_n(&s->magic, MAGIC, __ATOMIC_RELEASE);
    } else if (!result) {
        lock_machine(s);
        reap(s);
        for (int i = 0; i < SC_MAX_PROCS && !result; i++)
            if (s->proc[i].pid) result = SC_NOT_READY;
        if (!result) make_machine(s, devices, name, cc);
        pthread_mutex_unlock(&s->mutex);
    }
    if (!result) result = fchmod(fd, 0600) ? SC_INVALID : SC_OK;
    munmap(s, sizeof *s);
    close(fd); /* drops the lock */
    return result;
}

static void print_text(FILE *f, const char *text) { /* as JSON */
    fputc('"', f);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == '"' || c == '\\') fprintf(f, "\\u%04x", c);
        else fputc(c, f);
    }
    fputc('"', f);
}

static void print_device(FILE *f, const struct sc_state *s, int d) {
    char uuid[64];
    const char *comma = "";
    typedef unsigned long long u64;
    sc_uuid_string(d, -1, uuid, sizeof uuid);
    fprintf(f, "{\"index\": %d, \"uuid\": \"%s\", \"total\": %llu, \"reserved\": %llu, \"used\": %llu, \"peak\": %llu, "
               "\"launches\": %llu, \"invented\": %llu, \"processes\": [",
            d, uuid, (u64)s->device[d].total, (u64)s->device[d].reserved, (u64)sc_used(s, d, -1), (u64)s->peak[d].used,
            (u64)s->device[d].launches, (u64)s->peak[d].invented);
    for (int i = 0; i < SC_MAX_PROCS; i++) {
        const struct sc_usage *u = &s->proc[i].use[d];
        if (!s->proc[i].pid || !(u->context + u->bytes)) continue;
        fprintf(f, "%s{\"pid\": %d, \"context\": %llu, \"bytes\": %llu, \"name\": ", comma,
                s->proc[i].pid, (u64)u->context, (u64)u->bytes);
        print_text(f, s->proc[i].name);
        fputc('}', f);
        comma = ", ";
    }
    fprintf(f, "]}");
}

int sc_status(struct sc_state *s, char *json, size_t size) {
    FILE *f = fmemopen(json, size, "w");
    if (!f) return SC_INVALID;
    lock_machine(s);
    reap(s);
    fprintf(f, "{\"name\": ");
    print_text(f, s->name);
    fprintf(f, ", \"compute_capability\": \"%u.%u\", \"devices\": [", s->cc_major, s->cc_minor);
    for (unsigned d = 0; d < s->device_count; d++) {
        fputs(d ? ", " : "", f);
        print_device(f, s, (int)d);
    }
    fprintf(f, "], \"settings\": {");
    for (int i = 0; i < SC_SETTING_COUNT; i++)
        fprintf(f, "%s\"%s\": %.17g", i ? ", " : "", setting_names[i], s->settings[i]);
    fprintf(f, "}}");
    pthread_mutex_unlock(&s->mutex);
    int failed = fflush(f) || ftell(f) >= (long)size;
    fclose(f);
    return failed ? SC_INVALID : SC_OK;
}

int sc_hold(int device, uint64_t bytes, const char *name) {
    static uint64_t held;
    if (device < 0 || device >= (int)sc_state()->device_count) return SC_INVALID;
    int error = sc_context(device, -1);
    if (!error) error = sc_charge(device, -1, (int64_t)(bytes - held));
    if (error) return error;
    held = bytes;
    struct sc_state *s = lock_only();
    snprintf(own_entry(s, 1)->name, sizeof s->proc[0].name, "%s", name);
    sc_unlock();
    prctl(PR_SET_NAME, name);
    return SC_OK;
}
