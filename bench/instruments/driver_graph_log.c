// Writes each capture of a program down: free memory before and after, and the nodes with the bytes of their parameters.
// gcc -shared -fPIC -o graph_log.so driver_graph_log.c; LD_PRELOAD=./graph_log.so GRAPHLOG=/tmp/log python ...
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
typedef void *H;
static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *o(void) {
  if (!out) { const char *p = getenv("GRAPHLOG"); char b[512]; if (!p) p = "/tmp/graphlog"; snprintf(b, 512, "%s.%d", p, (int)getpid()); out = fopen(b, "w"); }
  return out;
}
static long freemem(void) { static int (*f)(size_t *, size_t *); size_t a = 0, t = 0; if (!f) f = dlsym(RTLD_NEXT, "cudaMemGetInfo"); if (f) f(&a, &t); return (long)a; }
static H cu(const char *n) { static H lib; if (!lib) lib = dlopen("libcuda.so.1", RTLD_NOW); return dlsym(lib, n); }
typedef struct { H func; unsigned g[3], b[3], sh; void **kp, **ex; H kern, ctx; } KP;
#define MAXF 4096
static H seen[MAXF]; static int nseen;
static int func(H f, H kern) {
  for (int i = 0; i < nseen; i++) if (seen[i] == (f ? f : kern)) return i;
  if (nseen == MAXF) return -1;
  static int (*info)(H, size_t, size_t *, size_t *), (*kinfo)(H, size_t, size_t *, size_t *), (*name)(const char **, H), (*kname)(const char **, H), (*attr)(int *, int, H);
  if (!info) { info = cu("cuFuncGetParamInfo"); kinfo = cu("cuKernelGetParamInfo"); name = cu("cuFuncGetName"); kname = cu("cuKernelGetName"); attr = cu("cuFuncGetAttribute"); }
  size_t off = 0, size = 0, end = 0; int n = 0;
  for (; n < 1000 && !(f ? info(f, n, &off, &size) : kinfo(kern, n, &off, &size)); n++) if (off + size > end) end = off + size;
  const char *nm = "?"; if (f) name(&nm, f); else kname(&nm, kern);
  int a[4] = {-1, -1, -1, -1}; if (f) { attr(&a[0], 1, f); attr(&a[1], 3, f); attr(&a[2], 4, f); attr(&a[3], 2, f); }
  fprintf(o(), "F %d %zu %d sh%d loc%d reg%d const%d %s\n", nseen, end, n, a[0], a[1], a[2], a[3], nm);
  seen[nseen] = f ? f : kern; return nseen++;
}
static void nodes(H graph) {
  static int (*get)(H, H *, size_t *), (*type)(H, int *), (*kp)(H, KP *);
  if (!get) { get = cu("cuGraphGetNodes"); type = cu("cuGraphNodeGetType"); kp = cu("cuGraphKernelNodeGetParams_v2"); }
  size_t n = 0; get(graph, 0, &n); H *v = malloc(n * sizeof(H) + 8); get(graph, v, &n);
  char *line = malloc(n * 24 + 64); size_t at = 0; line[0] = 0;
  for (size_t i = 0; i < n; i++) {
    int t = -1; type(v[i], &t);
    if (t == 0) { KP p; memset(&p, 0, sizeof p); int rc = kp(v[i], &p); at += sprintf(line + at, rc ? " E%d" : " k%d", rc ? rc : func(p.func, p.kern)); }
    else at += sprintf(line + at, " t%d", t);
  }
  fprintf(o(), "N %zu%s\n", n, line); free(v); free(line);
}
int cudaStreamBeginCapture(H s, int mode) { static int (*f)(H, int); if (!f) f = dlsym(RTLD_NEXT, "cudaStreamBeginCapture"); pthread_mutex_lock(&lock); fprintf(o(), "B %ld\n", freemem()); pthread_mutex_unlock(&lock); return f(s, mode); }
int cudaStreamEndCapture(H s, H *g) { static int (*f)(H, H *); if (!f) f = dlsym(RTLD_NEXT, "cudaStreamEndCapture"); int r = f(s, g); pthread_mutex_lock(&lock); fprintf(o(), "E %ld\n", freemem()); pthread_mutex_unlock(&lock); return r; }
static int made(int r, H *e, H g, long before) { pthread_mutex_lock(&lock); long after = freemem(); nodes(g); fprintf(o(), "I %ld %ld %p\n", before, after, r ? 0 : *e); fflush(o()); pthread_mutex_unlock(&lock); return r; }
int cudaGraphInstantiate(H *e, H g, unsigned long long flags) { static int (*f)(H *, H, unsigned long long); if (!f) f = dlsym(RTLD_NEXT, "cudaGraphInstantiate"); long b = freemem(); return made(f(e, g, flags), e, g, b); }
int cudaGraphInstantiateWithFlags(H *e, H g, unsigned long long flags) { static int (*f)(H *, H, unsigned long long); if (!f) f = dlsym(RTLD_NEXT, "cudaGraphInstantiateWithFlags"); long b = freemem(); return made(f(e, g, flags), e, g, b); }
int cudaGraphExecDestroy(H e) { static int (*f)(H); if (!f) f = dlsym(RTLD_NEXT, "cudaGraphExecDestroy"); int r = f(e); pthread_mutex_lock(&lock); fprintf(o(), "D %p\n", e); pthread_mutex_unlock(&lock); return r; }
