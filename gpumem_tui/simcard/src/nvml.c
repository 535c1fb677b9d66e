/* libnvidia-ml: the management library, over the shared state. No header of it
 * is needed; the structures are as in the public nvml.h. */
#define _GNU_SOURCE
#include "simcard.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25,
    NO_VALUE = 0xFFFFFFFF, OTHER_NAMESPACE = 10000000
};

typedef unsigned long long u64;
typedef struct { int device, instance; } *handle; /* nvmlDevice_t */
struct memory_v1 { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
struct process_v1 { unsigned pid; u64 memory; };
struct process_v2 { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };
struct process_detail { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; u64 protected_memory; };
struct process_details { unsigned version, mode, count; struct process_detail *list; };
struct process_sample { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; };
struct pci_info { char legacy_id[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct utilization { unsigned gpu, memory; };
struct temperature { unsigned version, sensor; int value; };

static struct { int device, instance; } handles[SC_MAX_DEVICES][1 + SC_MAX_MIG];
static int users; /* nvmlInit less nvmlShutdown */

static handle handle_of(int device, int instance) {
    handles[device][instance + 1].device = device;
    handles[device][instance + 1].instance = instance;
    return (handle)&handles[device][instance + 1];
}

static void pause_ms(double ms) {
    struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms * 1e6) % 1000000000};
    if (ms > 0) nanosleep(&t, NULL);
}

static int enter_library(void) {
    pause_ms(sc_get(SC_nvml_delay_ms));
    return users ? SUCCESS : UNINITIALIZED;
}

/* What each call on a device starts with. */
static int enter(handle h) {
    int error = enter_library();
    if (error) return error;
    if ((char *)h < (char *)handles || (char *)h >= (char *)handles + sizeof handles) return INVALID_ARGUMENT;
    int only = (int)sc_get(SC_nvml_error_device);
    if (only >= 0 && only != h->device) return SUCCESS;
    return sc_fault_due(SC_nvml_error, SC_nvml_error_at);
}

static int enter_with(handle h, enum sc_setting fault) {
    int error = enter(h);
    return error ? error : (int)sc_get(fault);
}

#define ENTER(h) do { int e_ = enter(h); if (e_) return e_; } while (0)
#define ENTER_WITH(h, fault) do { int e_ = enter_with(h, fault); if (e_) return e_; } while (0)

static int text(char *out, unsigned size, const char *value) {
    return (unsigned)snprintf(out, size, "%s", value) < size ? SUCCESS : INSUFFICIENT_SIZE;
}

/* ---- the library ------------------------------------------------------------------ */

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pause_ms(sc_get(SC_nvml_delay_ms));
    int error = (int)sc_get(SC_nvml_init_error);
    if (!error) __atomic_add_fetch(&users, 1, __ATOMIC_RELAXED);
    return error;
}
API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API int nvmlInit(void) { return nvmlInitWithFlags(0); }
API int nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    __atomic_sub_fetch(&users, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}
API const char *nvmlErrorString(int code) {
    static const struct { int code; const char *text; } texts[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
        {4, "Insufficient Permissions"}, {6, "Not Found"}, {7, "Insufficient Size"},
        {9, "Driver Not Loaded"}, {10, "Timeout"}, {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"}, {15, "GPU is lost"}, {16, "GPU requires reset"},
        {17, "The operating system has blocked the request"},
        {18, "Driver/library version mismatch"}, {19, "In use by another client"},
        {20, "Insufficient Memory"}, {25, "Argument version mismatch"}, {999, "Unknown Error"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code) return texts[i].text;
    return "Unknown Error";
}
API int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    int error = enter_library();
    return error ? error : text(out, size, "580.00.00");
}
API int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(out, size, "13.580.00.00"); }
API int nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return SUCCESS; }
API int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return SUCCESS; }
API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    char path[40], name[256] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NOT_FOUND;
    ssize_t n = read(fd, name, sizeof name - 1); /* up to the first NUL: the program */
    close(fd);
    return n > 0 ? text(out, size, name) : NOT_FOUND;
}

/* ---- finding devices ------------------------------------------------------------------ */

API int nvmlDeviceGetCount_v2(unsigned *n) {
    int error = enter_library();
    *n = sc_state()->device_count;
    return error;
}
API int nvmlDeviceGetCount(unsigned *n) { return nvmlDeviceGetCount_v2(n); }

static int found(int device, int instance, handle *out) {
    if (device < 0 || device >= (int)sc_state()->device_count) return INVALID_ARGUMENT;
    *out = handle_of(device, instance);
    ENTER(*out);
    return SUCCESS;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle *out) {
    int error = enter_library();
    return error ? error : found((int)i, -1, out);
}
API int nvmlDeviceGetHandleByIndex(unsigned i, handle *out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }
API int nvmlDeviceGetHandleByUUID(const char *uuid, handle *out) {
    char other[64];
    int error = enter_library();
    if (error) return error;
    for (int d = 0; d < (int)sc_state()->device_count; d++)
        for (int i = -1; i < (int)sc_get(SC_mig); i++) {
            sc_uuid_string(d, i, other, sizeof other);
            if (!strcmp(uuid, other)) return found(d, i, out);
        }
    return NOT_FOUND;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, handle *out) {
    unsigned domain, bus;
    int error = enter_library();
    if (error) return error;
    if (sscanf(id, "%x:%x", &domain, &bus) != 2) return INVALID_ARGUMENT;
    for (int d = 0; d < (int)sc_state()->device_count; d++)
        if (sc_pci_bus(d) == (int)bus && !domain) return found(d, -1, out);
    return NOT_FOUND;
}
API int nvmlDeviceGetHandleByPciBusId(const char *id, handle *out) { return nvmlDeviceGetHandleByPciBusId_v2(id, out); }

API int nvmlDeviceGetName(handle h, char *out, unsigned size) {
    char name[96];
    ENTER(h);
    snprintf(name, sizeof name, h->instance < 0 ? "%s" : "%s MIG 1g", sc_state()->name);
    return text(out, size, name);
}
API int nvmlDeviceGetUUID(handle h, char *out, unsigned size) {
    char uuid[64];
    ENTER(h);
    sc_uuid_string(h->device, h->instance, uuid, sizeof uuid);
    return text(out, size, uuid);
}
API int nvmlDeviceGetIndex(handle h, unsigned *i) {
    ENTER(h);
    *i = (unsigned)(h->instance < 0 ? h->device : h->instance);
    return SUCCESS;
}
API int nvmlDeviceGetMinorNumber(handle h, unsigned *n) { ENTER(h); *n = (unsigned)h->device; return SUCCESS; }
API int nvmlDeviceGetPciInfo_v3(handle h, struct pci_info *p) {
    ENTER(h);
    memset(p, 0, sizeof *p);
    p->bus = (unsigned)sc_pci_bus(h->device);
    snprintf(p->legacy_id, sizeof p->legacy_id, "0000:%02X:00.0", p->bus);
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", p->bus);
    return SUCCESS;
}
API int nvmlDeviceGetPciInfo_v2(handle h, struct pci_info *p) { return nvmlDeviceGetPciInfo_v3(h, p); }
API int nvmlDeviceGetCudaComputeCapability(handle h, int *major, int *minor) {
    ENTER(h);
    *major = (int)sc_state()->cc_major, *minor = (int)sc_state()->cc_minor;
    return SUCCESS;
}

/* ---- MIG ---------------------------------------------------------------------------------- */

API int nvmlDeviceGetMigMode(handle h, unsigned *now, unsigned *pending) {
    ENTER(h);
    if (sc_get(SC_mig) < 1) return NOT_SUPPORTED; /* as cards that cannot do it */
    *now = *pending = 1;
    return SUCCESS;
}
API int nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *n) {
    ENTER(h);
    *n = sc_get(SC_mig) < 1 ? 0 : SC_MAX_MIG;
    return SUCCESS;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned i, handle *out) {
    ENTER(h);
    if (i >= sc_get(SC_mig)) return NOT_FOUND;
    *out = handle_of(h->device, (int)i);
    return SUCCESS;
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle h, handle *out) {
    ENTER(h);
    *out = handle_of(h->device, -1);
    return SUCCESS;
}
API int nvmlDeviceIsMigDeviceHandle(handle h, unsigned *is) { ENTER(h); *is = h->instance >= 0; return SUCCESS; }
API int nvmlDeviceGetGpuInstanceId(handle h, unsigned *id) {
    ENTER(h);
    *id = (unsigned)h->instance + 1;
    return h->instance < 0 ? NOT_SUPPORTED : SUCCESS;
}
API int nvmlDeviceGetComputeInstanceId(handle h, unsigned *id) {
    ENTER(h);
    *id = 0;
    return h->instance < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* Version 1 counts what is reserved as used; version 2 shows it apart. */
static void measure(handle h, struct memory_v2 *m) {
    struct sc_state *s = sc_look();
    m->used = sc_used(s, h->device, h->instance);
    sc_unlock();
    m->total = sc_total(h->device, h->instance);
    m->reserved = sc_reserved(h->device, h->instance);
    m->free = m->total > m->reserved + m->used ? m->total - m->reserved - m->used : 0;
}
API int nvmlDeviceGetMemoryInfo(handle h, struct memory_v1 *out) {
    struct memory_v2 m;
    ENTER_WITH(h, SC_nvml_memory_error);
    measure(h, &m);
    out->total = m.total, out->free = m.free, out->used = m.total - m.free;
    return SUCCESS;
}
API int nvmlDeviceGetMemoryInfo_v2(handle h, struct memory_v2 *out) {
    ENTER_WITH(h, SC_nvml_memory_error);
    ENTER_WITH(h, SC_nvml_memory_v2_error);
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    measure(h, out);
    return SUCCESS;
}
API int nvmlDeviceGetBAR1MemoryInfo(handle h, struct memory_v1 *out) {
    ENTER_WITH(h, SC_nvml_memory_error);
    out->total = 256 << 20, out->used = 8 << 20, out->free = out->total - out->used;
    return SUCCESS;
}

/* ---- processes ----------------------------------------------------------------------------------- */

/* Fills up to `room` entries and returns how many there are. */
static unsigned list_processes(handle h, struct process_v2 *out, unsigned room) {
    int mode = (int)sc_get(SC_nvml_process_list), memory = sc_get(SC_nvml_process_memory) != 0;
    int hidden = (int)sc_get(SC_nvml_hide_pid);
    unsigned n = 0;
    if (mode == 1) return 0;
    struct sc_state *s = sc_look();
    for (int i = 0; i < SC_MAX_PROCS; i++) {
        const struct sc_usage *u = &s->proc[i].use[h->device];
        if (!s->proc[i].pid || !(u->context + u->bytes)) continue;
        if (h->instance >= 0 && u->instance != h->instance) continue;
        if (s->proc[i].pid == hidden) continue; /* its bytes still count as used */
        if (n < room) {
            out[n].pid = (unsigned)s->proc[i].pid + (mode == 2 ? OTHER_NAMESPACE : 0);
            out[n].memory = memory ? u->context + u->bytes : ~0ull;
            out[n].gpu_instance = u->instance < 0 ? NO_VALUE : (unsigned)u->instance + 1;
            out[n].compute_instance = u->instance < 0 ? NO_VALUE : 0;
        }
        n++;
    }
    sc_unlock();
    return n;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *n, struct process_v2 *out) {
    ENTER_WITH(h, SC_nvml_process_error);
    unsigned room = out ? *n : 0;
    *n = list_processes(h, out, room);
    return *n > room ? INSUFFICIENT_SIZE : SUCCESS;
}
API int nvmlDeviceGetComputeRunningProcesses_v2(handle h, unsigned *n, struct process_v2 *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(h, n, out);
}
/* Version 1. PyTorch looks this name up, with the structure of version 1. */
API int nvmlDeviceGetComputeRunningProcesses(handle h, unsigned *n, struct process_v1 *out) {
    struct process_v2 list[SC_MAX_PROCS];
    ENTER_WITH(h, SC_nvml_process_error);
    unsigned room = out ? *n : 0, count = list_processes(h, list, SC_MAX_PROCS);
    for (unsigned i = 0; i < count && i < room; i++) out[i].pid = list[i].pid, out[i].memory = list[i].memory;
    *n = count;
    return count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
API int nvmlDeviceGetRunningProcessDetailList(handle h, struct process_details *details) {
    struct process_v2 list[SC_MAX_PROCS];
    ENTER_WITH(h, SC_nvml_process_error);
    unsigned room = details->list ? details->count : 0;
    details->count = list_processes(h, list, SC_MAX_PROCS);
    for (unsigned i = 0; i < details->count && i < room; i++)
        details->list[i] = (struct process_detail){list[i].pid, list[i].memory, list[i].gpu_instance,
                                                   list[i].compute_instance, 0};
    return details->count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
static int no_processes(handle h, unsigned *n, int fault) {
    ENTER_WITH(h, SC_nvml_process_error);
    ENTER_WITH(h, fault);
    *n = 0;
    return SUCCESS;
}
#define NO_PROCESSES(name, fault)                                                                           \
    API int name(handle h, unsigned *n, void *out) { (void)out; return no_processes(h, n, fault); }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, SC_nvml_graphics_error)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, SC_nvml_graphics_error)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, SC_nvml_graphics_error)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, SC_nvml_process_error)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, SC_nvml_process_error)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, SC_nvml_process_error)

API int nvmlDeviceGetProcessUtilization(handle h, struct process_sample *out, unsigned *n, u64 since) {
    struct process_v2 list[SC_MAX_PROCS];
    struct timespec now;
    (void)since;
    ENTER_WITH(h, SC_nvml_telemetry_error);
    unsigned room = out ? *n : 0, count = list_processes(h, list, SC_MAX_PROCS);
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned i = 0; i < count && i < room; i++)
        out[i] = (struct process_sample){.pid = list[i].pid, .sm = sc_utilization(h->device) / count,
                                         .time = (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000};
    *n = count;
    return !count ? NOT_FOUND : count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

/* ---- telemetry --------------------------------------------------------------------------------------- */

static int number(handle h, unsigned *out, unsigned value) {
    ENTER_WITH(h, SC_nvml_telemetry_error);
    *out = value;
    return SUCCESS;
}
static unsigned load(handle h) { /* the handle is checked only after this */
    int known = (char *)h >= (char *)handles && (char *)h < (char *)handles + sizeof handles;
    return users && known ? sc_utilization(h->device) : 0;
}
static unsigned degrees(handle h) {
    double fixed = sc_get(SC_temperature);
    return fixed >= 0 ? (unsigned)fixed : 35 + load(h) * 4 / 10;
}
static unsigned milliwatts(handle h) {
    double fixed = sc_get(SC_power_mw);
    return fixed >= 0 ? (unsigned)fixed : 30000 + load(h) * 2500;
}
API int nvmlDeviceGetUtilizationRates(handle h, struct utilization *u) {
    u->memory = load(h) / 2;
    return number(h, &u->gpu, load(h));
}
API int nvmlDeviceGetTemperature(handle h, int sensor, unsigned *t) { (void)sensor; return number(h, t, degrees(h)); }
API int nvmlDeviceGetTemperatureV(handle h, struct temperature *t) { return number(h, (unsigned *)&t->value, degrees(h)); }
API int nvmlDeviceGetTemperatureThreshold(handle h, int kind, unsigned *t) { (void)kind; return number(h, t, 93); }
API int nvmlDeviceGetPowerUsage(handle h, unsigned *mw) { return number(h, mw, milliwatts(h)); }
API int nvmlDeviceGetPowerManagementLimit(handle h, unsigned *mw) { return number(h, mw, 350000); }
API int nvmlDeviceGetPowerManagementDefaultLimit(handle h, unsigned *mw) { return number(h, mw, 350000); }
API int nvmlDeviceGetEnforcedPowerLimit(handle h, unsigned *mw) { return number(h, mw, 350000); }
API int nvmlDeviceGetFanSpeed(handle h, unsigned *percent) { return number(h, percent, 30 + load(h) / 2); }
API int nvmlDeviceGetClockInfo(handle h, int kind, unsigned *mhz) { return number(h, mhz, kind == 2 ? 9501 : load(h) ? 1695 : 210); }
API int nvmlDeviceGetMaxClockInfo(handle h, int kind, unsigned *mhz) { return number(h, mhz, kind == 2 ? 9751 : 2100); }
API int nvmlDeviceGetEncoderUtilization(handle h, unsigned *u, unsigned *period) { *period = 100000; return number(h, u, 0); }
API int nvmlDeviceGetDecoderUtilization(handle h, unsigned *u, unsigned *period) { *period = 100000; return number(h, u, 0); }
API int nvmlDeviceGetPcieThroughput(handle h, int counter, unsigned *kb) { (void)counter; return number(h, kb, load(h) * 100); }
API int nvmlDeviceGetCurrPcieLinkGeneration(handle h, unsigned *v) { return number(h, v, 4); }
API int nvmlDeviceGetMaxPcieLinkGeneration(handle h, unsigned *v) { return number(h, v, 4); }
API int nvmlDeviceGetCurrPcieLinkWidth(handle h, unsigned *v) { return number(h, v, 16); }
API int nvmlDeviceGetMaxPcieLinkWidth(handle h, unsigned *v) { return number(h, v, 16); }
API int nvmlDeviceGetPerformanceState(handle h, unsigned *v) { return number(h, v, load(h) ? 2 : 8); }
API int nvmlDeviceGetPersistenceMode(handle h, unsigned *v) { return number(h, v, 0); }
API int nvmlDeviceGetComputeMode(handle h, unsigned *v) { return number(h, v, 0); }
API int nvmlDeviceGetDisplayMode(handle h, unsigned *v) { return number(h, v, 0); }
API int nvmlDeviceGetDisplayActive(handle h, unsigned *v) { return number(h, v, 0); }
API int nvmlDeviceGetBrand(handle h, unsigned *v) { return number(h, v, 0); }
API int nvmlDeviceGetMemoryBusWidth(handle h, unsigned *v) { return number(h, v, 384); }
API int nvmlDeviceGetNumGpuCores(handle h, unsigned *v) { return number(h, v, 10496); }
API int nvmlDeviceGetP2PStatus(handle a, handle b, int kind, unsigned *v) { (void)b, (void)kind; return number(a, v, 0); }
API int nvmlDeviceGetTopologyCommonAncestor(handle a, handle b, unsigned *v) { (void)b; return number(a, v, 20); }

/* What many real cards answer with "not supported". build.py adds all else that
 * nvidia-ml-py knows, as stubs that say the same. */
#define UNSUPPORTED(name) API int name(handle h) { ENTER(h); return NOT_SUPPORTED; }
UNSUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
UNSUPPORTED(nvmlDeviceGetDriverModel)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
UNSUPPORTED(nvmlDeviceGetSerial)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors)
UNSUPPORTED(nvmlDeviceGetEccMode)
UNSUPPORTED(nvmlDeviceGetNvLinkState)
