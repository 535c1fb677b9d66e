/* The state of one process: visible devices, blocks, memory pools, streams,
 * events, graph capture, copies. See simcard.h.
 *
 * Time: a kernel moves its stream's clock (idle_at) forward by kernel_us and
 * returns at once; waiting for a stream sleeps until its clock has passed. With
 * kernel_us=0 every stream is always idle.
 */
#define _GNU_SOURCE
#include "simcard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, CALL_GRANULE = 2 << 20, POOL_GRANULE = 32 << 20, QUEUE_DEPTH = 1024 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below */

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork(void) { pthread_mutex_unlock(&mutex); }

/* ---- visible devices -------------------------------------------------------- */

static struct { int device, instance; } visible[SC_MAX_DEVICES];
static int visible_count;
static __thread int current_ordinal;

static int mig_instances(void) {
    int n = (int)sc_get(SC_mig);
    return n > SC_MAX_MIG ? SC_MAX_MIG : n;
}

/* One word of CUDA_VISIBLE_DEVICES: an index, or the start of a UUID. */
static int parse_visible(const char *word, int *device, int *instance) {
    int count = (int)sc_state()->device_count, mig = mig_instances();
    char uuid[64], *end;
    *instance = mig ? 0 : -1;
    if (!strncmp(word, "GPU-", 4) || !strncmp(word, "MIG-", 4)) {
        for (int d = 0; d < count; d++)
            for (int i = -1; i < mig; i++) {
                sc_uuid_string(d, i, uuid, sizeof uuid);
                if (strncmp(uuid, word, strlen(word))) continue;
                *device = d;
                if (i >= 0) *instance = i;
                return 1;
            }
        return 0;
    }
    *device = (int)strtol(word, &end, 10);
    return end != word && *device >= 0 && *device < count;
}

static void find_visible(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    pthread_atfork(before_fork, after_fork, after_fork);
    if (!list) {
        /* With MIG on, CUDA sees the first instance only. */
        visible_count = mig_instances() ? 1 : (int)sc_state()->device_count;
        for (int i = 0; i < visible_count; i++) {
            visible[i].device = i;
            visible[i].instance = mig_instances() ? 0 : -1;
        }
        return;
    }
    char *copy = strdup(list), *rest = copy, *word;
    while ((word = strsep(&rest, ",")) && visible_count < SC_MAX_DEVICES) {
        while (*word == ' ') word++;
        int device, instance;
        if (!parse_visible(word, &device, &instance)) break; /* as CUDA: the rest is ignored */
        for (int i = 0; i < visible_count; i++)
            if (visible[i].device == device && visible[i].instance == instance) {
                visible_count = 0; /* as CUDA: a double entry leaves none */
                free(copy);
                return;
            }
        visible[visible_count].device = device;
        visible[visible_count++].instance = instance;
    }
    free(copy);
}

int sc_device_count(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_visible);
    return visible_count;
}

int sc_device_of(int ordinal) { sc_device_count(); return visible[ordinal].device; }
int sc_instance_of(int ordinal) { sc_device_count(); return visible[ordinal].instance; }
int sc_current(void) { return current_ordinal; }

int sc_set_current(int ordinal) {
    if (ordinal < 0 || ordinal >= sc_device_count()) return SC_INVALID;
    current_ordinal = ordinal;
    return SC_OK;
}

int sc_use(int ordinal) {
    static char made[SC_MAX_DEVICES];
    static int made_by;
    if (ordinal < 0 || ordinal >= sc_device_count()) return SC_INVALID;
    if (made_by != getpid()) { /* a forked child has no contexts */
        memset(made, 0, sizeof made);
        made_by = getpid();
    }
    if (made[ordinal]) return SC_OK;
    int error = sc_context(visible[ordinal].device, visible[ordinal].instance);
    made[ordinal] = !error;
    return error;
}

int sc_use_cudnn(void) {
    static char loaded[SC_MAX_DEVICES];
    static int loaded_by;
    int ordinal = current_ordinal, error = sc_use(ordinal);
    if (loaded_by != getpid()) {
        memset(loaded, 0, sizeof loaded);
        loaded_by = getpid();
    }
    uint64_t bytes = (uint64_t)sc_get(SC_cudnn_bytes);
    if (error || loaded[ordinal] || !bytes || sc_eager()) return error;
    error = sc_grow_context(visible[ordinal].device, bytes);
    loaded[ordinal] = !error;
    return error;
}

int sc_memory_info(int ordinal, size_t *free_bytes, size_t *total) {
    int error = sc_use(ordinal);
    if (error) return error;
    int device = visible[ordinal].device, instance = visible[ordinal].instance;
    struct sc_state *s = sc_lock();
    uint64_t limit = sc_total(device, instance) - sc_reserved(device, instance);
    uint64_t used = sc_used(s, device, instance);
    sc_unlock();
    *total = limit;
    *free_bytes = used < limit ? limit - used : 0;
    return SC_OK;
}

/* The numbers are CUdevice_attribute's, which are cudaDeviceAttr's as well. */
int sc_attribute(int ordinal, int attribute) {
    const struct sc_state *s = sc_state();
    switch (attribute) {
    case 1: case 2: case 3: return 1024; /* threads in a block; block x, y */
    case 4: return 64;                   /* block z */
    case 5: return 2147483647;           /* grid x */
    case 6: case 7: return 65535;        /* grid y, z */
    case 8: return 49152;                /* shared memory of a block */
    case 9: return 65536;                /* constant memory */
    case 10: return 32;                  /* warp */
    case 11: return 2147483647;          /* memory pitch */
    case 12: case 82: return 65536;      /* registers of a block, of an SM */
    case 13: return 1700000;             /* kHz */
    case 14: return 512;                 /* texture alignment */
    case 16: return 82;                  /* SMs */
    case 33: return sc_pci_bus(sc_device_of(ordinal));
    case 36: return 9750000;             /* memory kHz */
    case 37: return 384;                 /* memory bus */
    case 38: return 6 << 20;             /* L2 */
    case 39: return 1536;                /* threads of an SM */
    case 75: return (int)s->cc_major;
    case 76: return (int)s->cc_minor;
    case 81: return 102400;              /* shared memory of an SM */
    case 97: return 101376;              /* ... that a block can opt in to */
    case 106: return 16;                 /* blocks of an SM */
    case 19: case 31: case 40: case 41: case 78: case 83: /* host mapping, concurrent kernels, */
    case 95: case 102: case 103: case 115: return 1; /* UVA, ..., VMM, memory pools */
    default: return 0;
    }
}

static int charge(int ordinal, int64_t bytes) {
    return sc_charge(visible[ordinal].device, visible[ordinal].instance, bytes);
}

/* ---- blocks: a sorted array of address ranges -------------------------------- */

static struct sc_block *blocks;
static size_t block_count, block_room;

static size_t first_after(const char *ptr) { /* the first block that starts after ptr */
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].ptr <= ptr) low = middle + 1;
        else high = middle;
    }
    return low;
}

void sc_block_add(struct sc_block block) {
    sc_device_count();
    pthread_mutex_lock(&mutex);
    if (block_count == block_room) {
        block_room = block_room ? 2 * block_room : 256;
        blocks = realloc(blocks, block_room * sizeof *blocks);
        if (!blocks) abort();
    }
    size_t at = first_after(block.ptr);
    memmove(blocks + at + 1, blocks + at, (block_count - at) * sizeof *blocks);
    blocks[at] = block;
    block_count++;
    pthread_mutex_unlock(&mutex);
}

int sc_block_find(const void *ptr, struct sc_block *out) {
    pthread_mutex_lock(&mutex);
    size_t at = first_after(ptr);
    int found = at > 0 && (const char *)ptr < blocks[at - 1].ptr + blocks[at - 1].size;
    if (found) *out = blocks[at - 1];
    pthread_mutex_unlock(&mutex);
    return found;
}

int sc_block_take(const void *ptr, struct sc_block *out) {
    pthread_mutex_lock(&mutex);
    size_t at = first_after(ptr);
    int found = at > 0 && blocks[at - 1].ptr == ptr;
    if (found) {
        *out = blocks[at - 1];
        block_count--;
        memmove(blocks + at - 1, blocks + at, (block_count - at + 1) * sizeof *blocks);
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

static size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

/* Addresses without memory behind them until somebody writes there. */
void *sc_map(size_t size, int accessible) {
    void *p = mmap(NULL, size, accessible ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* cudaMalloc gives out whole 2 MiB pages here, so a call of 1 byte costs 2 MiB. */
int sc_alloc(int ordinal, size_t size, enum sc_kind kind, void **out) {
    int on_device = kind == SC_DEVICE || kind == SC_MANAGED;
    *out = NULL;
    if (!size) return SC_OK;
    if (size > (size_t)1 << 46) return SC_OUT_OF_MEMORY;
    size_t rounded = round_up(size, on_device ? CALL_GRANULE : PAGE);
    int error = sc_use(ordinal);
    if (!error && on_device) error = charge(ordinal, (int64_t)rounded);
    if (error) return error;
    if (!(*out = sc_map(rounded, 1))) {
        if (on_device) charge(ordinal, -(int64_t)rounded);
        return SC_OUT_OF_MEMORY;
    }
    sc_block_add((struct sc_block){.ptr = *out, .size = rounded, .ordinal = ordinal, .kind = kind,
                                   .charged = on_device ? rounded : 0});
    return SC_OK;
}

int sc_free(void *ptr) {
    struct sc_block b;
    if (!ptr) return sc_use(current_ordinal); /* cudaFree(0) makes the context */
    if (!sc_block_take(ptr, &b)) return SC_INVALID;
    if (b.kind != SC_REGISTERED) munmap(b.ptr, b.size);
    if (b.charged) charge(b.ordinal, -(int64_t)b.charged);
    struct sc_pool *pool = b.owner;
    if (pool) {
        pool->used -= b.size;
        if (pool->reserved > pool->keep) sc_pool_trim(pool, pool->keep);
    }
    return SC_OK;
}

/* ---- memory pools: they grow by 32 MiB and know no fragmentation --------------- */

struct sc_pool *sc_pool_new(int ordinal) {
    struct sc_pool *pool = calloc(1, sizeof *pool);
    if (pool) pool->ordinal = ordinal;
    return pool;
}

struct sc_pool *sc_pool_default(int ordinal) {
    static struct sc_pool *pools[SC_MAX_DEVICES];
    pthread_mutex_lock(&mutex);
    if (!pools[ordinal]) pools[ordinal] = sc_pool_new(ordinal);
    pthread_mutex_unlock(&mutex);
    return pools[ordinal];
}

int sc_pool_alloc(struct sc_pool *pool, size_t size, void **out) {
    size_t rounded = round_up(size ? size : 1, 512);
    int error = sc_use(pool->ordinal);
    if (error) return error;
    if (pool->used + rounded > pool->reserved) {
        uint64_t more = round_up(pool->used + rounded - pool->reserved, POOL_GRANULE);
        if ((error = charge(pool->ordinal, (int64_t)more))) return error;
        pool->reserved += more;
    }
    if (!(*out = sc_map(rounded, 1))) return SC_OUT_OF_MEMORY;
    pool->used += rounded;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    sc_block_add((struct sc_block){.ptr = *out, .size = rounded, .ordinal = pool->ordinal,
                                   .kind = SC_DEVICE, .owner = pool});
    return SC_OK;
}

void sc_pool_trim(struct sc_pool *pool, uint64_t keep) {
    uint64_t floor = round_up(pool->used > keep ? pool->used : keep, POOL_GRANULE);
    if (pool->reserved <= floor) return;
    charge(pool->ordinal, -(int64_t)(pool->reserved - floor));
    pool->reserved = floor;
}

/* ---- streams and capture ------------------------------------------------------- */

struct capture {
    unsigned long long id;
    struct sc_graph *graph;
};

struct sc_stream {
    int ordinal, priority;
    unsigned flags;
    uint64_t idle_at;
    struct capture *capture;
    sc_stream *next;
};

static sc_stream *streams;
static sc_stream default_streams[SC_MAX_DEVICES];

/* 0, 1 and 2 are CUDA's names for the current device's default stream. */
static sc_stream *resolve(void *stream) {
    if ((uintptr_t)stream > 2) return stream;
    default_streams[current_ordinal].ordinal = current_ordinal;
    return &default_streams[current_ordinal];
}

static void sleep_until(uint64_t when) {
    for (uint64_t now = sc_now_ns(); now < when; now = sc_now_ns()) {
        if (when - now < 50000) continue; /* too short for the scheduler */
        struct timespec t = {.tv_sec = (time_t)(when / 1000000000ull),
                             .tv_nsec = (long)(when % 1000000000ull)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
}

sc_stream *sc_stream_new(unsigned flags, int priority) {
    if (sc_use(current_ordinal)) return NULL;
    sc_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->ordinal = current_ordinal, s->flags = flags, s->priority = priority;
    pthread_mutex_lock(&mutex);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&mutex);
    return s;
}

void sc_stream_delete(void *stream) {
    if ((uintptr_t)stream <= 2) return;
    pthread_mutex_lock(&mutex);
    for (sc_stream **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = (*at)->next;
            free(stream);
            break;
        }
    pthread_mutex_unlock(&mutex);
}

int sc_stream_priority(void *stream) { return resolve(stream)->priority; }
unsigned sc_stream_flags(void *stream) { return resolve(stream)->flags; }
int sc_stream_ordinal(void *stream) { return resolve(stream)->ordinal; }
int sc_stream_busy(void *stream) {
    uint64_t idle_at = resolve(stream)->idle_at;
    return idle_at && idle_at > sc_now_ns();
}
void sc_stream_wait(void *stream) { sleep_until(resolve(stream)->idle_at); }

void sc_device_wait(int ordinal) {
    uint64_t last = default_streams[ordinal].idle_at;
    pthread_mutex_lock(&mutex);
    for (sc_stream *s = streams; s; s = s->next)
        if (s->ordinal == ordinal && s->idle_at > last) last = s->idle_at;
    pthread_mutex_unlock(&mutex);
    sleep_until(last);
}

int sc_sticky_error(void) { return sc_fault_due(SC_cuda_error, SC_cuda_error_at); }

int sc_launch(void *stream, uint64_t kernels) {
    sc_stream *s = resolve(stream);
    int error = sc_use(s->ordinal);
    if (!error) error = sc_sticky_error();
    if (error) return error;
    if (s->capture) {
        __atomic_add_fetch(&s->capture->graph->kernels, kernels, __ATOMIC_RELAXED);
        __atomic_add_fetch(&s->capture->graph->nodes, kernels, __ATOMIC_RELAXED);
        return SC_OK;
    }
    struct sc_device *d = &sc_state()->device[visible[s->ordinal].device];
    __atomic_add_fetch(&d->launches, kernels, __ATOMIC_RELAXED);
    uint64_t one = (uint64_t)(sc_get(SC_kernel_us) * 1000), cost = one * kernels;
    if (!cost) return SC_OK;
    __atomic_add_fetch(&d->busy_ns, cost, __ATOMIC_RELAXED);
    uint64_t now = sc_now_ns();
    s->idle_at = (s->idle_at > now ? s->idle_at : now) + cost;
    if (s->idle_at > now + QUEUE_DEPTH * one + cost) sleep_until(s->idle_at - QUEUE_DEPTH * one);
    return SC_OK;
}

void sc_stall(void *stream, uint64_t ns) {
    sc_stream *s = resolve(stream);
    uint64_t now = sc_now_ns();
    if (!s->capture) s->idle_at = (s->idle_at > now ? s->idle_at : now) + ns;
}

struct sc_graph *sc_graph_new(void) {
    struct sc_graph *g = calloc(1, sizeof *g);
    if (g) g->references = 1;
    return g;
}

void sc_graph_release(struct sc_graph *graph) {
    if (graph && !__atomic_sub_fetch(&graph->references, 1, __ATOMIC_ACQ_REL)) free(graph);
}

int sc_capture_begin(void *stream, struct sc_graph *graph) {
    static unsigned long long last_id;
    sc_stream *s = resolve(stream);
    if (s->capture) return SC_INVALID;
    struct capture *c = calloc(1, sizeof *c);
    if (!c) return SC_OUT_OF_MEMORY;
    c->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    c->graph = graph;
    __atomic_add_fetch(&graph->references, 1, __ATOMIC_RELAXED);
    s->capture = c;
    return SC_OK;
}

struct sc_graph *sc_capture_end(void *stream) {
    struct capture *c = resolve(stream)->capture;
    if (!c) return NULL;
    pthread_mutex_lock(&mutex);
    for (sc_stream *s = streams; s; s = s->next) /* also those that joined */
        if (s->capture == c) s->capture = NULL;
    pthread_mutex_unlock(&mutex);
    resolve(stream)->capture = NULL;
    return c->graph; /* c itself stays: an event may still point to it */
}

struct sc_graph *sc_capture_graph(void *stream, unsigned long long *id) {
    struct capture *c = resolve(stream)->capture;
    if (id) *id = c ? c->id : 0;
    return c ? c->graph : NULL;
}

/* ---- events ----------------------------------------------------------------------- */

struct sc_event {
    uint64_t at;
    struct capture *capture;
};

sc_event *sc_event_new(void) { return calloc(1, sizeof(sc_event)); }

void sc_event_record(sc_event *event, void *stream) {
    sc_stream *s = resolve(stream);
    uint64_t now = sc_now_ns();
    event->at = s->idle_at > now ? s->idle_at : now;
    event->capture = s->capture;
}

/* cudaStreamWaitEvent: the stream waits, or joins the capture of the event. */
void sc_event_join(void *stream, sc_event *event) {
    sc_stream *s = resolve(stream);
    if (event->capture && !s->capture) s->capture = event->capture;
    else if (event->at > s->idle_at && sc_get(SC_kernel_us) > 0) s->idle_at = event->at;
}

int sc_event_busy(sc_event *event) { return event->at > sc_now_ns(); }
void sc_event_wait(sc_event *event) { sleep_until(event->at); }

int sc_event_elapsed(sc_event *start, sc_event *end, float *ms) {
    if (!start->at || !end->at) return SC_INVALID;
    if (sc_event_busy(start) || sc_event_busy(end)) return SC_NOT_READY;
    *ms = (float)((double)((int64_t)end->at - (int64_t)start->at) / 1e6);
    return SC_OK;
}

/* ---- copies -------------------------------------------------------------------------- */

/* Kernels write nothing, so device memory holds what was copied there once, by
 * whoever had the block before. A number read back (a loss, the count of
 * non-zeros) would then be anything; so it is 0, unless it came to its place by
 * a copy of at most SMALL bytes. Such words are marked, and copies between
 * devices take the marks along. Kernels that are known by name (cudart.c) mark
 * where they would write: such words are 0 in larger reads of up to SMALL bytes as
 * well, and all() of something is true, as of nothing: it asks whether all is well. */
enum { SMALL = 256, NUMBER = 8, MARKS = 1 << 16 };
enum { UNMARKED, COPIED, COPIED_BYTES, WRITTEN = SC_WRITTEN, ALL = SC_ALL, COUNT = SC_COUNT };
static uintptr_t marks[MARKS]; /* the address of a word, by its last bits */
static char kinds[MARKS];

static void set_marks(const void *ptr, size_t size, int kind) {
    for (uintptr_t w = (uintptr_t)ptr / 4; w <= ((uintptr_t)ptr + size - 1) / 4; w++) {
        if (!kind && marks[w % MARKS] != w) continue;
        marks[w % MARKS] = kind ? w : 0;
        kinds[w % MARKS] = (char)kind;
    }
}

static int kind_at(uintptr_t w) { return marks[w % MARKS] == w ? kinds[w % MARKS] : UNMARKED; }

/* A byte (whether some check is true) is read where anything was: of copies it
 * trusts only one of bytes, since a kernel not known may have been there since. */
static int kind_of(const void *ptr, size_t size) {
    uintptr_t w = (uintptr_t)ptr / 4;
    int kind = kind_at(w);
    while (++w <= ((uintptr_t)ptr + size - 1) / 4) {
        int other = kind_at(w);
        if (other != kind) kind = kind >= WRITTEN || other >= WRITTEN ? WRITTEN : UNMARKED;
    }
    return size == 1 && kind == COPIED ? UNMARKED : kind;
}

void sc_written(const void *ptr, size_t size, enum sc_written kind) {
    if (ptr && size) set_marks(ptr, size < SMALL ? size : SMALL, (int)kind);
}

int sc_copied(const void *ptr, size_t size) { return kind_of(ptr, size) == COPIED; }

/* The state counts what depends on nothing: it is not to be relied on. */
static void count_invented(int ordinal, int counts) {
    struct sc_peak *peak = &sc_state()->peak[visible[ordinal].device];
    __atomic_add_fetch(&peak->invented, 1, __ATOMIC_RELAXED);
    if (counts) __atomic_add_fetch(&peak->counts, 1, __ATOMIC_RELAXED);
}

static void read_number(void *dst, const void *src, size_t size, int ordinal) {
    static unsigned bytes_read;
    unsigned every = (unsigned)sc_get(SC_true_every);
    int kind = kind_of(src, size);
    if (kind == COPIED || kind == COPIED_BYTES) {
        memcpy(dst, src, size);
    } else {
        memset(dst, 0, size);
        if (kind == ALL) *(char *)dst = 1;
        count_invented(ordinal, kind == COUNT);
    }
    if (every && size == 1 && !(__atomic_add_fetch(&bytes_read, 1, __ATOMIC_RELAXED) % every))
        *(char *)dst = 1;
}

static void read_numbers(char *dst, const char *src, size_t size, int ordinal) {
    int invented = 0, counts = 0;
    memmove(dst, src, size);
    for (size_t i = 0; i < size; i++) {
        int kind = kind_at((uintptr_t)(src + i) / 4);
        if (kind < WRITTEN) continue;
        dst[i] = kind == ALL;
        invented = 1;
        counts |= kind == COUNT;
    }
    if (invented) count_invented(ordinal, counts);
}

static void clear(char *dst, size_t size) { /* gives whole pages back */
    char *from = (char *)round_up((uintptr_t)dst, PAGE);
    char *to = (char *)((uintptr_t)(dst + size) / PAGE * PAGE);
    if (from >= to || madvise(from, (size_t)(to - from), MADV_DONTNEED)) {
        memset(dst, 0, size);
        return;
    }
    memset(dst, 0, (size_t)(from - dst));
    memset(to, 0, (size_t)(dst + size - to));
}

/* Device to device: pages never written are not copied but cleared, so that a
 * clone of 10 GB that no kernel ever filled takes no memory of this machine. */
static void copy_sparse(char *dst, const char *src, size_t size) {
    static int pagemap = -1;
    enum { BATCH = 4096 };
    uint64_t entries[BATCH];
    if (pagemap < 0) pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    while (size) {
        size_t chunk = (size_t)BATCH * PAGE - (uintptr_t)src % PAGE;
        if (chunk > size) chunk = size;
        size_t pages = ((uintptr_t)src % PAGE + chunk + PAGE - 1) / PAGE;
        ssize_t got = pagemap < 0 ? -1 : pread(pagemap, entries, pages * 8,
                                               (off_t)((uintptr_t)src / PAGE * 8));
        int written = got != (ssize_t)(pages * 8);
        for (size_t i = 0; !written && i < pages; i++) written = entries[i] >> 62 != 0;
        if (written) memmove(dst, src, chunk);
        else clear(dst, chunk);
        dst += chunk, src += chunk, size -= chunk;
    }
}

static int on_device(const void *ptr, struct sc_block *b) {
    return sc_block_find(ptr, b) && b->kind == SC_DEVICE;
}

static int apart(const char *a, const char *b, size_t size) {
    return a + size <= b || b + size <= a;
}

int sc_copy(void *dst, const void *src, size_t size, void *stream) {
    struct sc_block to, from;
    if (!size) return SC_OK;
    int error = sc_sticky_error();
    if (error) return error;
    if (sc_capture_graph(stream, NULL)) {
        __atomic_add_fetch(&sc_capture_graph(stream, NULL)->nodes, 1, __ATOMIC_RELAXED);
        return SC_OK;
    }
    double most = sc_get(SC_copy_max);
    if (most > 0 && (double)size > most) return SC_OK;
    int to_device = on_device(dst, &to), from_device = on_device(src, &from);
    if (from_device && !to_device) sc_stream_wait(stream);
    if (from_device && to_device && size >= 1 << 20 && apart(dst, src, size))
        copy_sparse(dst, src, size);
    else if (from_device && !to_device && size <= NUMBER) read_number(dst, src, size, from.ordinal);
    else if (from_device && !to_device && size <= SMALL) read_numbers(dst, src, size, from.ordinal);
    else memmove(dst, src, size);
    if (to_device && size <= SMALL)
        set_marks(dst, size, from_device ? kind_of(src, size) : size % 4 ? COPIED_BYTES : COPIED);
    return SC_OK;
}

int sc_fill(void *dst, int value, size_t size, void *stream) {
    struct sc_block b;
    if (sc_capture_graph(stream, NULL)) {
        __atomic_add_fetch(&sc_capture_graph(stream, NULL)->nodes, 1, __ATOMIC_RELAXED);
        return SC_OK;
    }
    if (!value && size >= 1 << 20 && on_device(dst, &b)) clear(dst, size);
    else memset(dst, value, size);
    if (size && size <= SMALL) set_marks(dst, size, size % 4 ? COPIED_BYTES : COPIED);
    return sc_sticky_error();
}

/* ---- library handles (cuBLAS, cuDNN, ...) -------------------------------------------------- */

int sc_handle_new(void **out) {
    struct sc_handle *h = calloc(1, sizeof *h);
    int error = sc_use(current_ordinal);
    if (!h) return SC_OUT_OF_MEMORY;
    h->ordinal = current_ordinal;
    h->charged = (uint64_t)sc_get(SC_handle_bytes);
    if (!error && h->charged) error = charge(h->ordinal, (int64_t)h->charged);
    if (error) free(h);
    else *out = h;
    return error;
}

void sc_handle_delete(void *handle) {
    struct sc_handle *h = handle;
    if (!h) return;
    if (h->charged) charge(h->ordinal, -(int64_t)h->charged);
    free(h);
}

int sc_handle_kernel(void *handle) { return sc_launch(handle ? ((struct sc_handle *)handle)->stream : NULL, 1); }

/* ---- the end of a process ----------------------------------------------------------------------- */

/* PyTorch's own threads may still drop Python objects when the interpreter
 * ends, above all where kernels take no time. CPython before 3.14 ends such a
 * thread by pthread_exit, whose unwinding meets a noexcept frame: "terminate
 * called without an active exception". Let autograd's sleep, as CPython 3.14
 * does; gloo's is joined when its group ends, so let it end, but unwind nothing. */
API void pthread_exit(void *value) {
    char name[32] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    while (!strncmp(name, "pt_autograd", 11)) pause();
    if (!strncmp(name, "pt_gloo", 7)) syscall(SYS_exit, 0);
    ((void (*)(void *))dlsym(RTLD_NEXT, "pthread_exit"))(value);
    abort(); /* not reached */
}
