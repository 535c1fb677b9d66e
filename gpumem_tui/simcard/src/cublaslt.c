/* libcublasLt: descriptors are opaque, each problem has one algorithm. */
#include "simcard.h"

#include <stdlib.h>
#include <string.h>

struct heuristic_result { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

static int create(void **out) { return (*out = calloc(1, 512)) ? 0 : 3; }

API int cublasLtCreate(void **h) { return sc_handle_new(h) ? 3 : 0; }
API int cublasLtDestroy(void *h) { sc_handle_delete(h); return 0; }
API int cublasLtMatmulDescCreate(void **d, int compute, int scale) { (void)compute, (void)scale; return create(d); }
API int cublasLtMatmulDescDestroy(void *d) { free(d); return 0; }
API int cublasLtMatmulPreferenceCreate(void **p) { return create(p); }
API int cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }
API int cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    (void)type, (void)rows, (void)columns, (void)ld;
    return create(l);
}
API int cublasLtMatrixLayoutDestroy(void *l) { free(l); return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void *h, void *op, void *a, void *b, void *c, void *d, void *preference,
                                       int wanted, struct heuristic_result *out, int *found) {
    (void)h, (void)op, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *found = wanted > 0;
    if (*found) memset(out, 0, sizeof *out);
    return 0;
}
API int cublasLtMatmul(void *h, void *op, const void *alpha, const void *a, void *al, const void *b, void *bl,
                       const void *beta, const void *c, void *cl, void *d, void *dl, const void *algorithm,
                       void *workspace, size_t workspace_size, void *stream) {
    (void)h, (void)op, (void)alpha, (void)a, (void)al, (void)b, (void)bl, (void)beta, (void)c, (void)cl;
    (void)d, (void)dl, (void)algorithm, (void)workspace, (void)workspace_size;
    return sc_launch(stream, 1) ? 13 /* execution failed */ : 0;
}
API size_t cublasLtGetVersion(void) { return 130000; }
API size_t cublasLtGetCudartVersion(void) { return 13000; }
