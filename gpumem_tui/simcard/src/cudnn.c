/* libcudnn: handles, the backend (graph) API, and what the older API must tell.
 * A backend descriptor keeps the attributes it is given; a question for engines
 * is answered with one; every plan wants cudnn_workspace bytes; executing one is
 * a kernel that does nothing. build.py sets CUDNN_VERSION from the real header. */
#include "simcard.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOC_FAILED = 1003, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { /* cudnnBackendAttributeName_t */
    HEURISTIC_RESULTS = 202, CONFIG_WORKSPACE = 303, CONFIG_SHARED_MEMORY = 304, PLAN_WORKSPACE = 402, ENGINE_INDEX = 1301
};

struct attribute {
    int name;
    size_t size; /* of one element */
    int64_t count;
    void *data;
    struct attribute *next;
};
struct descriptor { int type; struct attribute *attributes; };

static size_t element_size(int type) { /* of cudnnBackendAttributeType_t */
    switch (type) {
    case 0: case 3: case 5: case 6: case 15: return 8; /* handle, int64, double, pointer, descriptor */
    case 2: case 24: return 1;                         /* bool, char */
    case 26: return 16;                                /* fraction */
    default: return 4;
    }
}

API size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
API size_t cudnnGetMaxDeviceVersion(void) { return CUDNN_VERSION; }
API size_t cudnnGetCudartVersion(void) { return 13000; }
API const char *cudnnGetErrorString(int e) { return e ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
API void cudnnGetLastErrorString(char *out, size_t size) { if (size) *out = 0; }
API int cudnnGetProperty(int which, int *value) {
    *value = which == 0 ? CUDNN_VERSION / 10000 : which == 1 ? CUDNN_VERSION / 100 % 100 : CUDNN_VERSION % 100;
    return 0;
}
API int cudnnCreate(void **h) { return sc_handle_new(h) ? ALLOC_FAILED : 0; }
API int cudnnDestroy(void *h) { sc_handle_delete(h); return 0; }
API int cudnnSetStream(struct sc_handle *h, void *s) { h->stream = s; return 0; }
API int cudnnGetStream(struct sc_handle *h, void **s) { *s = h->stream; return 0; }

API int cudnnBackendCreateDescriptor(int type, struct descriptor **out) {
    if (!(*out = calloc(1, sizeof **out))) return ALLOC_FAILED;
    (*out)->type = type;
    return 0;
}
API int cudnnBackendDestroyDescriptor(struct descriptor *d) {
    for (struct attribute *a = d ? d->attributes : NULL, *next; a; a = next) {
        next = a->next;
        free(a->data);
        free(a);
    }
    free(d);
    return 0;
}
API int cudnnBackendFinalize(void *d) { (void)d; return 0; }
API int cudnnBackendSetAttribute(struct descriptor *d, int name, int type, int64_t count, const void *data) {
    struct attribute *a = d->attributes;
    while (a && a->name != name) a = a->next;
    if (!a) {
        if (!(a = calloc(1, sizeof *a))) return ALLOC_FAILED;
        a->name = name, a->next = d->attributes;
        d->attributes = a;
    }
    size_t size = element_size(type) * (size_t)count;
    free(a->data);
    if (!(a->data = malloc(size ? size : 1))) return ALLOC_FAILED;
    if (data) memcpy(a->data, data, size);
    a->size = element_size(type), a->count = count;
    return 0;
}
API int cudnnBackendGetAttribute(struct descriptor *d, int name, int type, int64_t room, int64_t *count, void *out) {
    int64_t number = -1, ignored;
    if (!count) count = &ignored;
    if (name == PLAN_WORKSPACE || name == CONFIG_WORKSPACE) number = (int64_t)sc_get(SC_cudnn_workspace);
    if (name == ENGINE_INDEX || name == CONFIG_SHARED_MEMORY) number = 0;
    if (number >= 0) {
        *count = 1;
        if (out && room) memcpy(out, &number, element_size(type));
        return 0;
    }
    if (name == HEURISTIC_RESULTS) { /* the caller's descriptors are to be filled; ours are blank */
        *count = 1;
        return 0;
    }
    struct attribute *a = d->attributes;
    while (a && a->name != name) a = a->next;
    *count = a ? a->count : 0;
    if (a && out) memcpy(out, a->data, a->size * (size_t)(a->count < room ? a->count : room));
    return 0;
}
API int cudnnBackendExecute(void *h, void *plan, void *pack) {
    (void)plan, (void)pack;
    return sc_handle_kernel(h) ? EXECUTION_FAILED : 0;
}

/* Recurrent nets keep their weights in cuDNN's own layout, which is not known here. */
API int cudnnGetRNNWeightSpaceSize(void *h, void *d, size_t *size) {
    (void)h, (void)d;
    *size = 0;
    return NOT_SUPPORTED;
}
