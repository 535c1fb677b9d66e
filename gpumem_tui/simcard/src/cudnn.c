/* libcudnn: handles, the backend (graph) API, and what the older API must tell.
 * A backend descriptor keeps the attributes it is given, and the convolution that
 * they come from; a question for engines is answered with two, because PyTorch's
 * benchmark empties its cache only where it had a choice; executing a plan is a
 * kernel that does nothing. build.py sets CUDNN_VERSION from the real header.
 *
 * The workspace of a dense convolution on NCHW tensors is what its tensors take once
 * more (times conv_workspace): tensor-core kernels want NHWC, and cuDNN transposes into
 * the workspace. Everything else asks for cudnn_workspace. */
#include "simcard.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOC_FAILED = 1003, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { /* cudnnBackendAttributeName_t */
    HEURISTIC_RESULTS = 202, CONFIG_WORKSPACE = 303, CONFIG_SHARED_MEMORY = 304, PLAN_WORKSPACE = 402,
    TENSOR_TYPE = 901, TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, ENGINE_INDEX = 1301
};
enum { OTHER_DESCRIPTOR = 15 }; /* cudnnBackendAttributeType_t */
enum { MAX_DIMS = 8, ENGINES = 2 };
static const uint64_t SLOWER_NS = 200000; /* the second engine, so that the first one is chosen */

/* Weights, input and output in the operations of a convolution: forward, data, filter. */
static const int convolution_tensors[3][3] = {{703, 704, 705}, {709, 710, 711}, {715, 716, 717}};

struct attribute {
    int name;
    size_t size; /* of one element */
    int64_t count;
    void *data;
    struct attribute *next;
};
struct shape { int dims, type; int64_t size[MAX_DIMS], stride[MAX_DIMS]; };
struct descriptor {
    int type, is_convolution, engine;
    struct shape tensor[3]; /* of the convolution: weights, input, output */
    struct attribute *attributes;
};

static struct shape shape_of(const struct descriptor *tensor) {
    struct shape s = {0};
    for (const struct attribute *a = tensor->attributes; a; a = a->next) {
        int n = a->count < MAX_DIMS ? (int)a->count : MAX_DIMS;
        if (a->name == TENSOR_TYPE && n) memcpy(&s.type, a->data, sizeof s.type);
        if (a->name == TENSOR_DIMENSIONS) s.dims = n, memcpy(s.size, a->data, (size_t)n * 8);
        if (a->name == TENSOR_STRIDES) memcpy(s.stride, a->data, (size_t)n * 8);
    }
    return s;
}

/* An operation has its tensors; graph, engine, configuration and plan have their operation.
 * Copied at once: callers drop the parts as soon as the whole is made. */
static void learn(struct descriptor *d, int name, const struct descriptor *part) {
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 3; i++)
            if (convolution_tensors[kind][i] == name) {
                d->tensor[i] = shape_of(part);
                d->is_convolution = 1;
                return;
            }
    if (!part->is_convolution || d->is_convolution) return;
    memcpy(d->tensor, part->tensor, sizeof d->tensor);
    d->is_convolution = 1;
    d->engine = part->engine;
}

static double tensor_bytes(const struct shape *s) {
    double bytes = s->type == 0 ? 4 : s->type == 1 ? 8 : 2; /* float, double, half and bfloat16 */
    for (int i = 0; i < s->dims; i++) bytes *= (double)s->size[i];
    return bytes;
}

static int64_t workspace(const struct descriptor *d) {
    const struct shape *w = &d->tensor[0], *x = &d->tensor[1], *y = &d->tensor[2];
    int grouped = d->is_convolution && w->dims > 1 && x->dims > 1 && x->size[1] != w->size[1];
    if (grouped && w->size[1] > 1) sc_note_grouped(sc_device_of(sc_current()));
    if (!d->is_convolution || grouped || x->dims < 3 || x->stride[1] == 1)
        return (int64_t)sc_get(SC_cudnn_workspace);
    double tensors = tensor_bytes(w) + tensor_bytes(x) + tensor_bytes(y);
    sc_note_convolution(sc_device_of(sc_current()), (uint64_t)tensors);
    return (int64_t)(sc_get(SC_conv_workspace) * tensors) / 512 * 512;
}

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
    if (type == OTHER_DESCRIPTOR && count && data && *(struct descriptor *const *)data)
        learn(d, name, *(struct descriptor *const *)data);
    return 0;
}
API int cudnnBackendGetAttribute(struct descriptor *d, int name, int type, int64_t room, int64_t *count, void *out) {
    int64_t number = -1, ignored;
    if (!count) count = &ignored;
    if (name == PLAN_WORKSPACE || name == CONFIG_WORKSPACE) number = workspace(d);
    if (name == ENGINE_INDEX || name == CONFIG_SHARED_MEMORY) number = 0;
    if (number >= 0) {
        *count = 1;
        if (out && room) memcpy(out, &number, element_size(type));
        return 0;
    }
    if (name == HEURISTIC_RESULTS) { /* the caller's descriptors are to be filled */
        *count = room && room < ENGINES ? room : ENGINES;
        for (int i = 0; out && i < *count; i++) {
            struct descriptor *found = ((struct descriptor **)out)[i];
            memcpy(found->tensor, d->tensor, sizeof d->tensor);
            found->is_convolution = d->is_convolution, found->engine = i;
        }
        return 0;
    }
    struct attribute *a = d->attributes;
    while (a && a->name != name) a = a->next;
    *count = a ? a->count : 0;
    if (a && out) memcpy(out, a->data, a->size * (size_t)(a->count < room ? a->count : room));
    return 0;
}
API int cudnnBackendExecute(struct sc_handle *h, struct descriptor *plan, void *pack) {
    (void)pack;
    if (sc_use_cudnn()) return ALLOC_FAILED;
    if (plan->engine) sc_stall(h->stream, SLOWER_NS);
    return sc_handle_kernel(h) ? EXECUTION_FAILED : 0;
}

/* ---- recurrent nets ------------------------------------------------------------
 * Matrices of all layers, then all biases; in each layer those of the input, then the
 * recurrent ones, then a projection. The descriptors are blank blocks made by stubs. */

enum { LSTM = 2, GRU = 3, NO_BIAS = 0, SINGLE_INPUT_BIAS = 1, SINGLE_RECURRENT_BIAS = 3, TRAINING = 1 };
enum { LSTM_PROJECTION = 8 };
struct rnn { int cell, bias, directions, type, input, hidden, projection, layers; };
struct sequence { int steps, batch; };
struct tensor { int type, dims, size[MAX_DIMS], stride[MAX_DIMS]; };

static int64_t gates(const struct rnn *r) { return r->cell == LSTM ? 4 : r->cell == GRU ? 3 : 1; }
static int64_t state_size(const struct rnn *r) {
    return r->projection && r->projection < r->hidden ? r->projection : r->hidden;
}
static size_t rnn_element(const struct rnn *r) { return r->type == 0 ? 4 : r->type == 1 ? 8 : 2; }
static int biases(const struct rnn *r) {
    return r->bias == NO_BIAS ? 0 : r->bias == SINGLE_INPUT_BIAS || r->bias == SINGLE_RECURRENT_BIAS ? 1 : 2;
}
static int64_t rows_of(const struct rnn *r, int id) { return id == LSTM_PROJECTION ? state_size(r) : r->hidden; }
static int64_t columns_of(const struct rnn *r, int layer, int id) {
    if (id == LSTM_PROJECTION) return r->hidden;
    if (id >= gates(r)) return state_size(r);
    return layer / r->directions ? state_size(r) * r->directions : r->input;
}
static int matrices(const struct rnn *r) {
    return (int)(2 * gates(r)) + (r->cell == LSTM && state_size(r) < r->hidden);
}
static int64_t matrix_offset(const struct rnn *r, int layer, int id) { /* in elements */
    int64_t sum = 0;
    for (int l = 0; l <= layer; l++)
        for (int i = 0; i < (l < layer ? matrices(r) : id); i++) sum += rows_of(r, i) * columns_of(r, l, i);
    return sum;
}
static int64_t all_matrices(const struct rnn *r) {
    return matrix_offset(r, r->layers * r->directions, 0);
}
static int64_t biases_of_layer(const struct rnn *r) { return biases(r) * gates(r) * r->hidden; }

static void describe(struct tensor *t, const struct rnn *r, int64_t rows, int64_t columns) {
    *t = (struct tensor){.type = r->type, .dims = 3, .size = {1, (int)rows, (int)columns},
                         .stride = {(int)(rows * columns), (int)columns, 1}};
}

API int cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int cell, int bias, int direction, int input_mode,
                                 int type, int precision, int math, int32_t input, int32_t hidden,
                                 int32_t projection, int32_t layers, void *dropout, uint32_t flags) {
    (void)algorithm, (void)input_mode, (void)precision, (void)math, (void)dropout, (void)flags;
    *r = (struct rnn){cell, bias, direction ? 2 : 1, type, input, hidden, projection, layers};
    return 0;
}
API int cudnnSetRNNDataDescriptor(struct sequence *s, int type, int layout, int steps, int batch, int size,
                                  const int *lengths, void *padding) {
    (void)type, (void)layout, (void)size, (void)lengths, (void)padding;
    *s = (struct sequence){steps, batch};
    return 0;
}
API int cudnnGetRNNWeightSpaceSize(void *h, const struct rnn *r, size_t *size) {
    (void)h;
    int64_t elements = all_matrices(r) + r->layers * r->directions * biases_of_layer(r);
    *size = (size_t)elements * rnn_element(r);
    return 0;
}
/* The caller leaves out what it does not ask for. */
API int cudnnGetRNNWeightParams(void *h, const struct rnn *r, int32_t layer, size_t space, char *weights, int32_t id,
                                struct tensor *matrix, char **matrix_at, struct tensor *bias, char **bias_at) {
    (void)h, (void)space;
    if (id < 0 || id > LSTM_PROJECTION || layer < 0) return NOT_SUPPORTED;
    if (matrix && matrix_at && id < matrices(r)) {
        *matrix_at = weights + (size_t)matrix_offset(r, layer, id) * rnn_element(r);
        describe(matrix, r, rows_of(r, id), columns_of(r, layer, id));
    } else if (matrix && matrix_at) {
        *matrix_at = NULL, memset(matrix, 0, sizeof *matrix);
    }
    if (!bias || !bias_at) return 0;
    int64_t first = r->bias == SINGLE_RECURRENT_BIAS ? gates(r) : 0;
    *bias_at = NULL, memset(bias, 0, sizeof *bias);
    if (id < first || id >= first + biases(r) * gates(r)) return 0;
    int64_t at = all_matrices(r) + layer * biases_of_layer(r) + (id - first) * r->hidden;
    *bias_at = weights + (size_t)at * rnn_element(r);
    describe(bias, r, r->hidden, 1);
    return 0;
}
/* Assumed: training keeps each gate, the cell and the output of each step; a step works on its gates. */
API int cudnnGetRNNTempSpaceSizes(void *h, const struct rnn *r, int mode, const struct sequence *s, size_t *work,
                                  size_t *reserve) {
    (void)h;
    size_t one = (size_t)(s->steps * (int64_t)s->batch * r->hidden * r->directions) * rnn_element(r);
    if (work) *work = one * (size_t)gates(r);
    if (reserve) *reserve = mode == TRAINING ? one * (size_t)((gates(r) + 2) * r->layers) : 0;
    return 0;
}
API int cudnnGetTensorNdDescriptor(const struct tensor *t, int room, int *type, int *dims, int *size, int *stride) {
    int n = t->dims < room ? t->dims : room;
    *type = t->type, *dims = n;
    memcpy(size, t->size, (size_t)n * sizeof *size);
    memcpy(stride, t->stride, (size_t)n * sizeof *stride);
    return 0;
}
static int rnn_kernel(void *h) {
    if (sc_use_cudnn()) return ALLOC_FAILED;
    return sc_handle_kernel(h) ? EXECUTION_FAILED : 0;
}
API int cudnnRNNForward(void *h) { return rnn_kernel(h); }
API int cudnnRNNBackwardData_v8(void *h) { return rnn_kernel(h); }
API int cudnnRNNBackwardWeights_v8(void *h) { return rnn_kernel(h); }
