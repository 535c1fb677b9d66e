/* libcublas: handles and their settings; each computation is one kernel that
 * does nothing (a stub made by build.py). */
#include "simcard.h"

enum { ALLOC_FAILED = 3 };

static __thread int math_mode, pointer_mode, atomics_mode;

API int cublasCreate_v2(void **h) { return sc_handle_new(h) ? ALLOC_FAILED : 0; }
API int cublasDestroy_v2(void *h) { sc_handle_delete(h); return 0; }
API int cublasSetStream_v2(struct sc_handle *h, void *s) { h->stream = s; return 0; }
API int cublasGetStream_v2(struct sc_handle *h, void **s) { *s = h->stream; return 0; }
API int cublasSetMathMode(void *h, int m) { (void)h; math_mode = m; return 0; }
API int cublasGetMathMode(void *h, int *m) { (void)h; *m = math_mode; return 0; }
API int cublasSetPointerMode_v2(void *h, int m) { (void)h; pointer_mode = m; return 0; }
API int cublasGetPointerMode_v2(void *h, int *m) { (void)h; *m = pointer_mode; return 0; }
API int cublasSetAtomicsMode(void *h, int m) { (void)h; atomics_mode = m; return 0; }
API int cublasGetAtomicsMode(void *h, int *m) { (void)h; *m = atomics_mode; return 0; }
API int cublasGetSmCountTarget(void *h, int *n) { (void)h; *n = 0; return 0; }
API int cublasGetVersion_v2(void *h, int *v) { (void)h; *v = 130000; return 0; }
API const char *cublasGetStatusString(int s) { return s ? "CUBLAS_STATUS_ALLOC_FAILED" : "CUBLAS_STATUS_SUCCESS"; }
API const char *cublasGetStatusName(int s) { return cublasGetStatusString(s); }
