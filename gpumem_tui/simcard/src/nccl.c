/* libnccl: communicators that hold device memory outside PyTorch's allocator
 * (nccl_bytes each). The ranks of one communicator meet in a shared file: every
 * collective waits for all ranks, and messages of up to SLOT bytes are really
 * exchanged and reduced, so that object collectives and losses arrive. Of larger
 * ones each rank only sees its own part. Send and receive move nothing.
 * build.py sets NCCL_VERSION_CODE from the real header. */
#define _GNU_SOURCE
#include "simcard.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, CUDA_ERROR = 1, SYSTEM_ERROR = 2, REMOTE_ERROR = 6, SLOT = 1 << 20 };
enum { SUM, PROD, MAX, MIN, AVG };

typedef struct { char bytes[128]; } unique_id;

struct room { /* what the ranks share */
    int arrived, generation, aborted, padding[13];
    char slots[][SLOT];
};
struct comm {
    int rank, ranks, ordinal, splits;
    struct room *room; /* NULL: alone, or all ranks in this process */
    unique_id id;
    void *buffer;
};

static const int type_size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

API int ncclGetVersion(int *v) { *v = NCCL_VERSION_CODE; return SUCCESS; }
API const char *ncclGetErrorString(int e) {
    return e == SUCCESS ? "no error" : e == CUDA_ERROR ? "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
         : e == REMOTE_ERROR ? "remote process exited or there was a network error" : "unhandled system error";
}
API const char *ncclGetLastError(void *c) { (void)c; return ""; }
API int ncclGetUniqueId(unique_id *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "%d-%llx", getpid(), (unsigned long long)sc_now_ns());
    return SUCCESS;
}

/* ---- the room ------------------------------------------------------------------------ */

static int meet(struct comm *c) { /* a barrier */
    struct room *r = c->room;
    int generation = __atomic_load_n(&r->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&r->arrived, 1, __ATOMIC_ACQ_REL) == c->ranks) {
        __atomic_store_n(&r->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&r->generation, generation + 1, __ATOMIC_RELEASE);
        return SUCCESS;
    }
    for (int i = 0; __atomic_load_n(&r->generation, __ATOMIC_ACQUIRE) == generation; i++) {
        if (__atomic_load_n(&r->aborted, __ATOMIC_RELAXED)) return REMOTE_ERROR;
        if (i > 100) usleep(50);
    }
    return SUCCESS;
}

static int enter_room(struct comm *c) {
    char path[4096];
    size_t size = sizeof(struct room) + (size_t)c->ranks * SLOT;
    snprintf(path, sizeof path, "%s.nccl-%s", sc_state_path(), c->id.bytes); /* beside the state */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size)) return SYSTEM_ERROR;
    c->room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->room == MAP_FAILED) return SYSTEM_ERROR;
    int error = meet(c);
    if (!c->rank) unlink(path);
    return error;
}

/* ---- communicators ----------------------------------------------------------------------- */

static int new_comm(struct comm **out, int ranks, const unique_id *id, int rank, int shared) {
    struct comm *c = calloc(1, sizeof *c);
    if (!c) return SYSTEM_ERROR;
    c->rank = rank, c->ranks = ranks, c->ordinal = sc_current();
    if (id) c->id = *id;
    int error = sc_alloc(c->ordinal, (size_t)sc_get(SC_nccl_bytes), SC_DEVICE, &c->buffer) ? CUDA_ERROR : SUCCESS;
    if (!error && shared && ranks > 1) error = enter_room(c);
    if (error) free(c);
    else *out = c;
    return error;
}
API int ncclCommInitRank(struct comm **c, int ranks, unique_id id, int rank) { return new_comm(c, ranks, &id, rank, 1); }
API int ncclCommInitRankConfig(struct comm **c, int ranks, unique_id id, int rank, void *config) {
    (void)config;
    return new_comm(c, ranks, &id, rank, 1);
}
API int ncclCommInitRankScalable(struct comm **c, int ranks, int rank, int ids, unique_id *id, void *config) {
    (void)ids, (void)config;
    return new_comm(c, ranks, id, rank, 1);
}
API int ncclCommInitAll(struct comm **c, int n, const int *devices) {
    int before = sc_current(), error = SUCCESS;
    for (int i = 0; i < n && !error; i++) {
        sc_set_current(devices ? devices[i] : i);
        error = new_comm(&c[i], n, NULL, i, 0);
    }
    sc_set_current(before);
    return error;
}
API int ncclCommSplit(struct comm *c, int color, int key, struct comm **out, void *config) {
    int ranks = 0, rank = 0;
    unique_id id = {{0}};
    (void)config;
    *out = NULL;
    if (!c->room) return color < 0 ? SUCCESS : new_comm(out, 1, NULL, 0, 0);
    memcpy(c->room->slots[c->rank], (int[]){color, key}, 8);
    int error = meet(c);
    for (int i = 0; i < c->ranks; i++) {
        const int *other = (const int *)c->room->slots[i];
        if (other[0] != color) continue;
        ranks++;
        rank += other[1] < key || (other[1] == key && i < c->rank);
    }
    if (!error) error = meet(c);
    snprintf(id.bytes, sizeof id.bytes, "%.80s-%d-%d", c->id.bytes, ++c->splits, color);
    return error || color < 0 ? error : new_comm(out, ranks, &id, rank, 1);
}
static int end(struct comm *c, int aborted) {
    if (!c) return SUCCESS;
    if (c->room) {
        if (aborted) __atomic_store_n(&c->room->aborted, 1, __ATOMIC_RELAXED);
        munmap(c->room, sizeof(struct room) + (size_t)c->ranks * SLOT);
    }
    if (c->buffer) sc_free(c->buffer);
    free(c);
    return SUCCESS;
}
API int ncclCommDestroy(struct comm *c) { return end(c, 0); }
API int ncclCommAbort(struct comm *c) { return end(c, 1); }
API int ncclCommCount(struct comm *c, int *n) { *n = c->ranks; return SUCCESS; }
API int ncclCommUserRank(struct comm *c, int *n) { *n = c->rank; return SUCCESS; }
API int ncclCommCuDevice(struct comm *c, int *n) { *n = c->ordinal; return SUCCESS; }
API int ncclCommGetAsyncError(struct comm *c, int *e) {
    *e = c && c->room && c->room->aborted ? REMOTE_ERROR : SUCCESS;
    return SUCCESS;
}
API int ncclCommRegister(struct comm *c, void *p, size_t n, void **h) { (void)c, (void)n; *h = p; return SUCCESS; }
API int ncclMemAlloc(void **p, size_t n) { return sc_alloc(sc_current(), n, SC_DEVICE, p) ? CUDA_ERROR : SUCCESS; }
API int ncclMemFree(void *p) { return sc_free(p) ? CUDA_ERROR : SUCCESS; }

/* ---- collectives ------------------------------------------------------------------------------ */

#define REDUCE(T) do {                                                                        \
        T *to = out; const T *from = in;                                                      \
        for (size_t i = 0; i < count; i++)                                                    \
            to[i] = op == PROD ? (T)(to[i] * from[i]) : op == MAX ? (to[i] > from[i] ? to[i] : from[i]) \
                  : op == MIN ? (to[i] < from[i] ? to[i] : from[i]) : (T)(to[i] + from[i]);   \
    } while (0)

static void reduce(void *out, const void *in, size_t count, int type, int op) {
    switch (type) {
    case 0: REDUCE(int8_t); break;
    case 1: REDUCE(uint8_t); break;
    case 2: REDUCE(int32_t); break;
    case 3: REDUCE(uint32_t); break;
    case 4: REDUCE(int64_t); break;
    case 5: REDUCE(uint64_t); break;
    case 7: REDUCE(float); break;
    case 8: REDUCE(double); break;
    default: break; /* 16-bit and 8-bit floats stay as the first rank has them */
    }
}
static void average(void *out, size_t count, int type, int ranks) {
    for (size_t i = 0; i < count; i++) {
        if (type == 7) ((float *)out)[i] /= (float)ranks;
        if (type == 8) ((double *)out)[i] /= ranks;
    }
}

/* All ranks lay down `bytes`; then `use` takes what it wants from the slots. */
static int exchange(struct comm *c, const void *send, size_t bytes, void *stream) {
    if (send) sc_copy(c->room->slots[c->rank], send, bytes, stream);
    return meet(c);
}
static int start(struct comm *c, void *stream, size_t bytes, int *really) {
    *really = c->room && bytes <= SLOT && !sc_capture_graph(stream, NULL);
    return sc_launch(stream, 1) ? CUDA_ERROR : SUCCESS;
}
static int finish(struct comm *c, void *stream) { /* of a large message */
    return c->room && !sc_capture_graph(stream, NULL) ? meet(c) : SUCCESS;
}
static void own(void *recv, const void *send, size_t bytes, void *stream) {
    if (recv != send) sc_copy(recv, send, bytes, stream);
}

/* Sum up `count` elements that begin at `offset` in every slot, into recv. */
static void collect(struct comm *c, void *recv, size_t offset, size_t count, int type, int op, void *stream) {
    size_t bytes = count * (size_t)type_size[type];
    void *sum = malloc(bytes ? bytes : 1);
    if (!sum) return;
    memcpy(sum, c->room->slots[0] + offset, bytes);
    for (int i = 1; i < c->ranks; i++) reduce(sum, c->room->slots[i] + offset, count, type, op);
    if (op == AVG) average(sum, count, type, c->ranks);
    sc_copy(recv, sum, bytes, stream);
    free(sum);
}

API int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, struct comm *c, void *s) {
    size_t bytes = count * (size_t)type_size[type];
    int really, error = start(c, s, bytes, &really);
    if (error) return error;
    if (!really) { own(recv, send, bytes, s); return finish(c, s); }
    error = exchange(c, send, bytes, s);
    if (!error) collect(c, recv, 0, count, type, op, s);
    return error ? error : meet(c);
}
API int ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root, struct comm *c, void *s) {
    size_t bytes = count * (size_t)type_size[type];
    int really, error = start(c, s, bytes, &really);
    if (error) return error;
    if (!really) { if (c->rank == root) own(recv, send, bytes, s); return finish(c, s); }
    error = exchange(c, send, bytes, s);
    if (!error && c->rank == root) collect(c, recv, 0, count, type, op, s);
    return error ? error : meet(c);
}
API int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op, struct comm *c, void *s) {
    size_t bytes = count * (size_t)type_size[type], offset = (size_t)c->rank * bytes;
    int really, error = start(c, s, bytes * (size_t)c->ranks, &really);
    if (error) return error;
    if (!really) { own(recv, (const char *)send + offset, bytes, s); return finish(c, s); }
    error = exchange(c, send, bytes * (size_t)c->ranks, s);
    if (!error) collect(c, recv, offset, count, type, op, s);
    return error ? error : meet(c);
}
API int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, struct comm *c, void *s) {
    size_t bytes = count * (size_t)type_size[type];
    int really, error = start(c, s, bytes, &really);
    if (error) return error;
    if (!really) { if (c->rank == root) own(recv, send, bytes, s); return finish(c, s); }
    error = exchange(c, c->rank == root ? send : NULL, bytes, s);
    if (!error) sc_copy(recv, c->room->slots[root], bytes, s);
    return error ? error : meet(c);
}
API int ncclBcast(void *buffer, size_t count, int type, int root, struct comm *c, void *s) {
    return ncclBroadcast(buffer, buffer, count, type, root, c, s);
}
static int gather(const void *send, void *recv, size_t bytes, struct comm *c, void *s, int want) {
    int really, error = start(c, s, bytes, &really);
    if (error) return error;
    if (really) error = exchange(c, send, bytes, s);
    for (int i = 0; i < c->ranks && want && !error; i++) /* large: one's own part everywhere */
        sc_copy((char *)recv + (size_t)i * bytes, really ? c->room->slots[i] : send, bytes, s);
    return error ? error : finish(c, s);
}
API int ncclAllGather(const void *send, void *recv, size_t count, int type, struct comm *c, void *s) {
    return gather(send, recv, count * (size_t)type_size[type], c, s, 1);
}
API int ncclGather(const void *send, void *recv, size_t count, int type, int root, struct comm *c, void *s) {
    return gather(send, recv, count * (size_t)type_size[type], c, s, c->rank == root);
}
API int ncclAlltoAll(const void *send, void *recv, size_t count, int type, struct comm *c, void *s) {
    size_t bytes = count * (size_t)type_size[type];
    int really, error = start(c, s, bytes * (size_t)c->ranks, &really);
    if (error) return error;
    if (!really) { own(recv, send, bytes * (size_t)c->ranks, s); return finish(c, s); }
    error = exchange(c, send, bytes * (size_t)c->ranks, s);
    for (int i = 0; i < c->ranks && !error; i++)
        sc_copy((char *)recv + (size_t)i * bytes, c->room->slots[i] + (size_t)c->rank * bytes, bytes, s);
    return error ? error : meet(c);
}
API int ncclSend(const void *p, size_t n, int type, int peer, struct comm *c, void *s) {
    (void)p, (void)n, (void)type, (void)peer, (void)c;
    return sc_launch(s, 1) ? CUDA_ERROR : SUCCESS;
}
API int ncclRecv(void *p, size_t n, int type, int peer, struct comm *c, void *s) {
    (void)p, (void)n, (void)type, (void)peer, (void)c;
    return sc_launch(s, 1) ? CUDA_ERROR : SUCCESS;
}
