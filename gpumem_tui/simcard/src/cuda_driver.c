/* libcuda: the driver API, as far as PyTorch, Triton and monitors use it. The
 * rest of cuda.h is stubs made by build.py, which also makes sc_driver_alias:
 * what cuda.h renames, such as cuMemAlloc to cuMemAlloc_v2. */
#define _GNU_SOURCE
#include "simcard.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>

extern const char *sc_driver_alias(const char *name);

#define RESULT(error) ((CUresult)(error)) /* SC_* are CUDA's own numbers */

/* ---- initialisation, devices ------------------------------------------------- */

API CUresult cuInit(unsigned flags) {
    (void)flags;
    return sc_device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *v) { *v = CUDA_VERSION; return CUDA_SUCCESS; }
API CUresult cuGetErrorString(CUresult e, const char **text) {
    *text = e == CUDA_SUCCESS ? "no error" : e == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
          : e == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "unknown error";
    return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult e, const char **name) {
    *name = e == CUDA_SUCCESS ? "CUDA_SUCCESS" : e == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : e == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *n) { *n = sc_device_count(); return CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *d, int ordinal) {
    *d = ordinal;
    return ordinal >= 0 && ordinal < sc_device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDeviceGetName(char *name, int size, CUdevice d) {
    (void)d;
    snprintf(name, (size_t)size, "%s", sc_state()->name);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice d) {
    sc_uuid_bytes(sc_device_of(d), sc_instance_of(d), (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}
#undef cuDeviceGetUuid /* the older name is exported as well */
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice d) { return cuDeviceGetUuid_v2(uuid, d); }
API CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice d) {
    snprintf(out, (size_t)size, "0000:%02X:00.0", sc_pci_bus(sc_device_of(d)));
    return CUDA_SUCCESS;
}
API CUresult cuDeviceTotalMem(size_t *bytes, CUdevice d) {
    *bytes = sc_total(sc_device_of(d), sc_instance_of(d)) - sc_reserved(sc_device_of(d), sc_instance_of(d));
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice d) {
    *value = sc_attribute(d, attribute);
    return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult *status) {
    (void)version, (void)flags;
    Dl_info self;
    dladdr((void *)cuInit, &self);
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *out = library ? dlsym(library, sc_driver_alias(name)) : NULL;
    if (library && !*out) *out = dlsym(library, name);
    if (status) *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- contexts: one for each device, named by its address ----------------------- */

static char contexts[SC_MAX_DEVICES];
static __thread int context_stack[16], context_depth;
static __thread int context_set; /* this thread has made one current */

static CUcontext context_of(int ordinal) { return (CUcontext)&contexts[ordinal]; }
static int ordinal_of(CUcontext c) { return (int)((char *)c - contexts); }

API CUresult cuCtxGetCurrent(CUcontext *c) {
    int any = context_set || (sc_device_count() && sc_has_context(sc_device_of(sc_current())));
    *c = any ? context_of(sc_current()) : NULL;
    return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext c) {
    context_set = c != NULL;
    return c ? RESULT(sc_set_current(ordinal_of(c))) : CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent(CUcontext c) {
    if (context_depth == 16) return CUDA_ERROR_OUT_OF_MEMORY;
    context_stack[context_depth++] = sc_current();
    return cuCtxSetCurrent(c);
}
API CUresult cuCtxPopCurrent(CUcontext *c) {
    if (c) *c = context_of(sc_current());
    if (context_depth) sc_set_current(context_stack[--context_depth]);
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *d) { *d = sc_current(); return CUDA_SUCCESS; }
API CUresult cuCtxSynchronize(void) { sc_device_wait(sc_current()); return RESULT(sc_sticky_error()); }
API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    *flags = 0;
    *active = sc_has_context(sc_device_of(d));
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
    *c = context_of(d);
    return RESULT(sc_use(d));
}

/* ---- memory ------------------------------------------------------------------------ */

API CUresult cuMemAlloc(CUdeviceptr *p, size_t n) {
    return RESULT(sc_alloc(sc_current(), n, SC_DEVICE, (void **)p));
}
API CUresult cuMemFree(CUdeviceptr p) { return RESULT(sc_free((void *)p)); }
API CUresult cuMemAllocHost(void **p, size_t n) { return RESULT(sc_alloc(sc_current(), n, SC_HOST, p)); }
API CUresult cuMemFreeHost(void *p) { return RESULT(sc_free(p)); }
API CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    return RESULT(sc_memory_info(sc_current(), free_bytes, total));
}
API CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr p) {
    struct sc_block b;
    if (!sc_block_find((void *)p, &b)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = (CUdeviceptr)b.ptr;
    if (size) *size = b.size;
    return CUDA_SUCCESS;
}
API CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr p) {
    struct sc_block b;
    if (!sc_block_find((void *)p, &b)) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = context_of(b.ordinal); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = b.kind == SC_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(CUdeviceptr *)value = p;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)value = b.kind == SC_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = b.ordinal; break;
    default: *(int *)value = 0;
    }
    return CUDA_SUCCESS;
}
API CUresult cuMemcpyHtoD(CUdeviceptr d, const void *s, size_t n) { return RESULT(sc_copy((void *)d, s, n, NULL)); }
API CUresult cuMemcpyDtoH(void *d, CUdeviceptr s, size_t n) { return RESULT(sc_copy(d, (void *)s, n, NULL)); }
API CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) {
    return RESULT(sc_copy((void *)d, (void *)s, n, st));
}
API CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) {
    return RESULT(sc_fill((void *)d, v, n, s));
}
API CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) {
    (void)s;
    for (size_t i = 0; i < n; i++) ((unsigned *)d)[i] = v;
    return CUDA_SUCCESS;
}

/* ---- virtual memory management: addresses apart from the memory behind them ------------ */

struct physical { size_t size; int ordinal, references, charged; CUmemAllocationProp prop; };

static int charge(const struct physical *m, int64_t bytes) {
    return m->charged ? sc_charge(sc_device_of(m->ordinal), sc_instance_of(m->ordinal), bytes) : SC_OK;
}
static void drop(struct physical *m) {
    if (__atomic_sub_fetch(&m->references, 1, __ATOMIC_ACQ_REL)) return;
    charge(m, -(int64_t)m->size);
    free(m);
}

API CUresult cuMemGetAllocationGranularity(size_t *g, const CUmemAllocationProp *p,
                                           CUmemAllocationGranularity_flags option) {
    (void)p, (void)option;
    *g = 2 << 20;
    return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr hint, unsigned long long flags) {
    (void)align, (void)hint, (void)flags;
    char *start = sc_map(n + (2 << 20), 0); /* some more, so that it starts on a 2 MiB border */
    if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
    char *aligned = (char *)(((uintptr_t)start + (2 << 20) - 1) & ~((uintptr_t)(2 << 20) - 1));
    if (aligned > start) munmap(start, (size_t)(aligned - start));
    munmap(aligned + n, (size_t)((2 << 20) - (aligned - start)));
    *p = (CUdeviceptr)aligned;
    return CUDA_SUCCESS;
}
API CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
    return munmap((void *)p, n) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *prop,
                         unsigned long long flags) {
    (void)flags;
    struct physical *m = calloc(1, sizeof *m);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    m->size = n, m->references = 1, m->prop = *prop;
    m->charged = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    m->ordinal = m->charged ? prop->location.id : sc_current();
    int error = sc_use(m->ordinal);
    if (!error) error = charge(m, (int64_t)n);
    if (error) free(m);
    else *h = (CUmemGenericAllocationHandle)(uintptr_t)m;
    return RESULT(error);
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle h) { drop((struct physical *)(uintptr_t)h); return CUDA_SUCCESS; }
API CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
    (void)offset, (void)flags;
    struct physical *m = (struct physical *)(uintptr_t)h;
    if (mprotect((void *)p, n, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
    __atomic_add_fetch(&m->references, 1, __ATOMIC_RELAXED);
    sc_block_add((struct sc_block){.ptr = (char *)p, .size = n, .ordinal = m->ordinal,
                                   .kind = m->charged ? SC_DEVICE : SC_HOST, .owner = m});
    return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
    struct sc_block b;
    for (size_t at = 0; at < n; at += b.size) {
        if (!sc_block_take((void *)(p + at), &b)) return CUDA_ERROR_INVALID_VALUE;
        madvise(b.ptr, b.size, MADV_DONTNEED);
        mprotect(b.ptr, b.size, PROT_NONE);
        drop(b.owner);
    }
    return CUDA_SUCCESS;
}
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *p) {
    struct sc_block b;
    if (!sc_block_find(p, &b) || !b.owner) return CUDA_ERROR_INVALID_VALUE;
    __atomic_add_fetch(&((struct physical *)b.owner)->references, 1, __ATOMIC_RELAXED);
    *h = (CUmemGenericAllocationHandle)(uintptr_t)b.owner;
    return CUDA_SUCCESS;
}
API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle h) {
    *prop = ((struct physical *)(uintptr_t)h)->prop;
    return CUDA_SUCCESS;
}
API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType t,
                                          unsigned long long flags) {
    (void)out, (void)h, (void)t, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}
API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, CUmemAllocationHandleType t) {
    (void)h, (void)os, (void)t;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- streams, events, modules, kernels ------------------------------------------------------ */

API CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
    *s = (CUstream)sc_stream_new(flags, priority);
    return *s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuStreamCreate(CUstream *s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
API CUresult cuStreamDestroy(CUstream s) { sc_stream_delete(s); return CUDA_SUCCESS; }
API CUresult cuStreamSynchronize(CUstream s) { sc_stream_wait(s); return RESULT(sc_sticky_error()); }
API CUresult cuStreamQuery(CUstream s) { return RESULT(sc_stream_busy(s) ? SC_NOT_READY : sc_sticky_error()); }
API CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status) {
    *status = sc_capture_graph(s, NULL) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
    (void)flags;
    sc_event_join(s, (sc_event *)e);
    return CUDA_SUCCESS;
}
API CUresult cuEventCreate(CUevent *e, unsigned flags) {
    (void)flags;
    *e = (CUevent)sc_event_new();
    return *e ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuEventDestroy(CUevent e) { free(e); return CUDA_SUCCESS; }
API CUresult cuEventRecord(CUevent e, CUstream s) { sc_event_record((sc_event *)e, s); return CUDA_SUCCESS; }
API CUresult cuEventQuery(CUevent e) { return RESULT(sc_event_busy((sc_event *)e) ? SC_NOT_READY : SC_OK); }
API CUresult cuEventSynchronize(CUevent e) { sc_event_wait((sc_event *)e); return CUDA_SUCCESS; }
API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    return RESULT(sc_event_elapsed((sc_event *)a, (sc_event *)b, ms));
}

static char module, function; /* all modules and functions are these */

API CUresult cuModuleLoad(CUmodule *m, const char *f) { (void)f; *m = (CUmodule)&module; return CUDA_SUCCESS; }
API CUresult cuModuleLoadData(CUmodule *m, const void *image) { (void)image; *m = (CUmodule)&module; return CUDA_SUCCESS; }
API CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **v) {
    (void)n, (void)o, (void)v;
    return cuModuleLoadData(m, image);
}
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
    (void)m, (void)name;
    *f = (CUfunction)&function;
    return CUDA_SUCCESS;
}
API CUresult cuLibraryLoadData(CUlibrary *l, const void *code, CUjit_option *jo, void **jv, unsigned jn,
                               CUlibraryOption *lo, void **lv, unsigned ln) {
    (void)code, (void)jo, (void)jv, (void)jn, (void)lo, (void)lv, (void)ln;
    *l = (CUlibrary)&module;
    return CUDA_SUCCESS;
}
API CUresult cuLibraryGetKernel(CUkernel *k, CUlibrary l, const char *name) {
    (void)l, (void)name;
    *k = (CUkernel)&function;
    return CUDA_SUCCESS;
}
API CUresult cuKernelGetFunction(CUfunction *f, CUkernel k) { *f = (CUfunction)k; return CUDA_SUCCESS; }
API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f) {
    (void)f;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int block, size_t shared) {
    (void)f, (void)block, (void)shared;
    *n = 2;
    return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream s, void **args, void **extra) {
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)args, (void)extra;
    return RESULT(sc_launch(s, 1));
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **args, void **extra) {
    (void)f, (void)args, (void)extra;
    return RESULT(sc_launch(config->hStream, 1));
}
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                       unsigned bz, unsigned shared, CUstream s, void **args) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, NULL);
}
