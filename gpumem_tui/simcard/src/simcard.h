/* What the simulated CUDA libraries share.
 *
 * libsimcard.so holds two things: the state file, mapped by every process that
 * uses the same simulated machine (devices, who holds how many bytes, settings), and
 * the state of one process (current device, blocks, streams, events, graphs).
 * The libraries that take NVIDIA's names are thin layers over these functions.
 *
 * "device" is an index on the simulated machine; "ordinal" is what CUDA code of this
 * process calls a device, after CUDA_VISIBLE_DEVICES.
 */
#ifndef SIMCARD_H
#define SIMCARD_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

enum { SC_MAX_DEVICES = 16, SC_MAX_PROCS = 256, SC_MAX_MIG = 7 };
enum { SC_LOOK_NS = 50000000 };
enum { SC_OK = 0, SC_INVALID = 1, SC_OUT_OF_MEMORY = 2, SC_NOT_READY = 600 };

/* Settings: shared, changeable at run time, and each overridden for one process
 * by the environment variable SIMCARD_<NAME>. All are numbers. */
#define SC_SETTINGS(X)                                                          \
    X(context_bytes, 300.0 * (1 << 20)) /* at the first use of a device; cards.py knows more */ \
    X(cudnn_bytes, 1280.0 * (1 << 20)) /* libraries' kernels, at cuDNN's first use */ \
    X(handle_bytes, 0)         /* charged for each cuBLAS and cuDNN handle */    \
    X(cudnn_workspace, 16.0 * (1 << 20)) /* of cuDNN plans that are no dense convolution */ \
    X(conv_workspace, 1)       /* of a dense NCHW convolution: so many times its tensors */ \
    X(nccl_bytes, 200.0 * (1 << 20)) /* charged for each NCCL communicator */    \
    X(kernel_us, 0)            /* what a kernel costs on its stream */           \
    X(copy_max, 0)             /* do not carry out larger copies; 0: all */      \
    X(true_every, 0)           /* each Nth one-byte read-back gives 1 */         \
    X(cuda_error, 0)           /* launches and synchronisations return this */   \
    X(cuda_error_at, 0)        /* ... from this time (seconds since 1970) */     \
    X(utilization, -1)         /* percent; -1: from the launches */              \
    X(temperature, -1)         /* degrees; -1: follows the utilisation */        \
    X(power_mw, -1)            /* milliwatts; -1: follows the utilisation */     \
    X(mig, 0)                  /* MIG instances for each device; 0: MIG off */   \
    X(nvml_init_error, 0)      /* what nvmlInit returns */                       \
    X(nvml_error, 0)           /* what each call on a device returns */          \
    X(nvml_error_at, 0)        /* ... from this time (seconds since 1970) */     \
    X(nvml_error_device, -1)   /* ... on this device; -1: on all */              \
    X(nvml_memory_error, 0)    /* what memory queries return */                  \
    X(nvml_memory_v2_error, 0) /* what the second version of it returns */       \
    X(nvml_process_error, 0)   /* what process lists return */                   \
    X(nvml_graphics_error, 0)  /* ... the list of graphics processes alone */    \
    X(nvml_process_memory, 1)  /* 0: memory of processes not available */        \
    X(nvml_process_list, 0)    /* 1: empty; 2: pids of another pid namespace */  \
    X(nvml_hide_pid, 0)        /* the lists leave this process out; 0: none */   \
    X(nvml_telemetry_error, 0) /* utilisation, temperature, power, clocks */     \
    X(nvml_delay_ms, 0)        /* how long each NVML call takes */

enum sc_setting {
#define X(name, value) SC_##name,
    SC_SETTINGS(X)
#undef X
    SC_SETTING_COUNT
};

/* ---- the shared state (state.c) ---------------------------------- */

struct sc_usage { /* what one process holds on one device */
    uint64_t context, bytes;
    int32_t has_context, instance; /* instance: MIG instance, or -1 */
};

struct sc_proc {
    int32_t pid;
    uint64_t start; /* start time from /proc, against reuse of the pid */
    char name[64];
    struct sc_usage use[SC_MAX_DEVICES];
};

struct sc_device {
    uint64_t total, reserved; /* bytes on the card; held by driver and firmware */
    uint64_t launches, busy_ns; /* kernels so far, and their time */
    uint64_t seen_launches, seen_busy_ns, seen_at; /* at the last look, for rates */
    uint32_t utilization;
};

/* What was highest, per device. Files of a run are read when nothing of it lives any
 * more, without these libraries: it stands at the start of the file, 10 words each
 * (gpumem_tui/journal/simstate.py); change it there as well, with the version. */
struct sc_peak {
    uint64_t total, reserved;
    uint64_t used;      /* the most that all processes held at once, and then: */
    uint64_t outside;   /* ... their contexts and libraries */
    uint64_t processes; /* ... how many had a context */
    uint64_t convolution; /* weights, input and output of the largest dense NCHW one */
    uint64_t refused;   /* requests that did not fit */
    uint64_t invented;  /* numbers read back that no kernel had computed */
    uint64_t counts;    /* those of them that say how much was picked by a mask and the like */
    uint64_t grouped;   /* plans of grouped convolutions that are not depthwise */
};

struct sc_state {
    uint64_t magic;
    uint64_t head_version, head_devices;
    struct sc_peak peak[SC_MAX_DEVICES];
    pthread_mutex_t mutex; /* shared between processes, robust */
    uint32_t device_count, cc_major, cc_minor;
    char name[64];
    double settings[SC_SETTING_COUNT];
    struct sc_device device[SC_MAX_DEVICES];
    struct sc_proc proc[SC_MAX_PROCS];
};

API struct sc_state *sc_state(void);
API const char *sc_state_path(void); /* "" where there is none */
API struct sc_state *sc_lock(void); /* also drops processes that have ended */
API struct sc_state *sc_look(void); /* the same, of those that ended SC_LOOK_NS ago: a look at many cards in a row is cheap */
API void sc_unlock(void);
API double sc_get(enum sc_setting setting);
API int sc_fault_due(enum sc_setting code, enum sc_setting at); /* code, or 0 */
API uint64_t sc_now_ns(void);

/* Instances are -1 outside MIG mode. sc_used is called under the lock. */
API uint64_t sc_total(int device, int instance);
API uint64_t sc_reserved(int device, int instance);
API uint64_t sc_used(const struct sc_state *state, int device, int instance);
API int sc_charge(int device, int instance, int64_t bytes);
API int sc_context(int device, int instance);
API int sc_has_context(int device);
API int sc_grow_context(int device, uint64_t bytes); /* by a library's kernels */
API void sc_note_convolution(int device, uint64_t bytes);
API int sc_eager(void); /* kernels are loaded with the context */
API void sc_note_grouped(int device);
API void sc_drop_context(int device);
API uint32_t sc_utilization(int device);
API void sc_uuid_bytes(int device, int instance, unsigned char out[16]);
API void sc_uuid_string(int device, int instance, char *out, size_t size);
API int sc_pci_bus(int device);

/* For machine.py, through ctypes: on any state file, by its path. */
API struct sc_state *sc_attach(const char *path); /* NULL and errno: not ours, or not there */
API void sc_detach(struct sc_state *state);
API int sc_create(const char *path, const char *devices, const char *name, const char *cc);
API int sc_set(struct sc_state *state, const char *name, double value);
API int sc_status(struct sc_state *state, char *json, size_t size);

/* For hold.c: this process holds so many bytes, in all. */
API int sc_hold(int device, uint64_t bytes, const char *name);

/* ---- the state of this process (process.c) ------------------------ */

enum sc_kind { SC_NONE, SC_DEVICE, SC_MANAGED, SC_HOST, SC_REGISTERED };

struct sc_block { /* a range of addresses that CUDA knows about */
    char *ptr;
    size_t size, charged;
    int ordinal;
    enum sc_kind kind;
    void *owner; /* the memory pool or the physical handle behind it */
};

struct sc_graph { uint64_t kernels, nodes; int references; };
struct sc_pool { int ordinal; uint64_t used, used_high, reserved, reserved_high, keep; };
struct sc_handle { void *stream; int ordinal; uint64_t charged; };
typedef struct sc_stream sc_stream;
typedef struct sc_event sc_event;

API int sc_device_count(void); /* visible ones */
API int sc_device_of(int ordinal);
API int sc_instance_of(int ordinal);
API int sc_current(void);
API int sc_set_current(int ordinal);
API int sc_use_cudnn(void); /* loads its kernels on the current device, once */
API int sc_use(int ordinal); /* makes the context; SC_OK or SC_OUT_OF_MEMORY */
API int sc_attribute(int ordinal, int attribute); /* by CUDA's numbers */
API int sc_memory_info(int ordinal, size_t *free_bytes, size_t *total);

API int sc_alloc(int ordinal, size_t size, enum sc_kind kind, void **out);
API int sc_free(void *ptr);
API void *sc_map(size_t size, int accessible);
API void sc_block_add(struct sc_block block);
API int sc_block_find(const void *ptr, struct sc_block *out);
API int sc_block_take(const void *ptr, struct sc_block *out);

API struct sc_pool *sc_pool_default(int ordinal);
API struct sc_pool *sc_pool_new(int ordinal);
API int sc_pool_alloc(struct sc_pool *pool, size_t size, void **out);
API void sc_pool_trim(struct sc_pool *pool, uint64_t keep);

API sc_stream *sc_stream_new(unsigned flags, int priority);
API void sc_stream_delete(void *stream);
API int sc_stream_priority(void *stream);
API unsigned sc_stream_flags(void *stream);
API int sc_stream_ordinal(void *stream);
API int sc_stream_busy(void *stream);
API void sc_stream_wait(void *stream);
API void sc_device_wait(int ordinal);
API void sc_stall(void *stream, uint64_t ns); /* the stream is busy for so long */
API int sc_launch(void *stream, uint64_t kernels);
API int sc_sticky_error(void);

API int sc_capture_begin(void *stream, struct sc_graph *graph);
API struct sc_graph *sc_capture_end(void *stream);
API struct sc_graph *sc_capture_graph(void *stream, unsigned long long *id);
API struct sc_graph *sc_graph_new(void);
API void sc_graph_release(struct sc_graph *graph);

API sc_event *sc_event_new(void);
API void sc_event_record(sc_event *event, void *stream);
API void sc_event_join(void *stream, sc_event *event);
API int sc_event_busy(sc_event *event);
API void sc_event_wait(sc_event *event);
API int sc_event_elapsed(sc_event *start, sc_event *end, float *ms);

/* What a kernel that was launched would write somewhere: a result; whether all of something is
 * true; how many there are of something, by which the program then makes tensors. */
enum sc_written { SC_WRITTEN = 8, SC_ALL, SC_COUNT };
API void sc_written(const void *ptr, size_t size, enum sc_written what);
API int sc_copied(const void *ptr, size_t size); /* what is there came by copies */
API int sc_copy(void *dst, const void *src, size_t size, void *stream);
API int sc_fill(void *dst, int value, size_t size, void *stream);

API int sc_handle_new(void **out);
API void sc_handle_delete(void *handle);
API int sc_handle_kernel(void *handle); /* a kernel on the handle's stream */

#endif
