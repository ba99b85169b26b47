/* Gyre for C, and for whatever can call C: a runtime, its communicator of all ranks, allreduce, allgather, broadcast
 * and barrier, and the gradient reducer. What each call promises (matching between ranks, deadlines, threads, memory)
 * is in the C++ headers: gyre/runtime.h, gyre/communicator.h, gyre/reducer.h. Memory is the caller's unless said
 * otherwise, and the host's but for the functions that end in _on, which take a device. Running out of memory ends the
 * process.
 *
 *   gyre_runtime* runtime;
 *   gyre_status status = gyre_runtime_create(&runtime);
 *   if (status.code == 0) status = gyre_all_reduce(gyre_runtime_world(runtime), &x, &x, 1, GYRE_F32, GYRE_SUM);
 *   if (status.code != 0) fprintf(stderr, "%s\n", status.message);
 *
 * Link libgyre_c. Values of enumerations only ever grow at the end; gyre_status and gyre_device keep their size. */
#ifndef GYRE_C_GYRE_H_
#define GYRE_C_GYRE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct gyre_runtime gyre_runtime;
typedef struct gyre_communicator gyre_communicator;
typedef struct gyre_reducer gyre_reducer;

/* How a call ended: 0, or the number of an absl::StatusCode (3 kInvalidArgument, 4 kDeadlineExceeded,
 * 9 kFailedPrecondition, 10 kAborted, 14 kUnavailable ...) with a message, cut off where it is longer. */
typedef struct gyre_status {
  int code;
  char message[508];
} gyre_status;

typedef enum gyre_dtype {
  GYRE_U8 = 0,
  GYRE_I8 = 1,
  GYRE_I16 = 2,
  GYRE_U16 = 3,
  GYRE_I32 = 4,
  GYRE_I64 = 5,
  GYRE_F16 = 6,
  GYRE_BF16 = 7,
  GYRE_F32 = 8,
  GYRE_F64 = 9,
  GYRE_BOOL = 10
} gyre_dtype;

typedef enum gyre_op {
  GYRE_SUM = 0,
  GYRE_AVERAGE = 1,
  GYRE_MIN = 2,
  GYRE_MAX = 3,
  GYRE_PRODUCT = 4,
  GYRE_ADASUM = 5
} gyre_op;

/* Where memory is: on the host, which is {-1, NULL}, or on one of this process's GPUs ({0} is the first one). There an
 * operation comes after all that was queued on `stream` before the call, and once it has returned well, what is queued
 * there sees the result: gyre::Device in gyre/tensor.h. Where there is no libgyre_cuda, it ends in 12, kUnimplemented;
 * where CUDA finds no GPU, in 14, kUnavailable. */
typedef struct gyre_device {
  int gpu;      /* its ordinal, as CUDA counts them in this process; -1: the host */
  void* stream; /* a cudaStream_t there, not cudaStreamPerThread; NULL: the default one. Not used on the host */
} gyre_device;

/* Joins the job that this process was started in (options come from the environment). */
gyre_status gyre_runtime_create(gyre_runtime** runtime);
/* Leaves it. After the reducers were destroyed. NULL does nothing. */
void gyre_runtime_destroy(gyre_runtime* runtime);
/* All ranks of the job. The runtime's. */
gyre_communicator* gyre_runtime_world(gyre_runtime* runtime);

int gyre_rank(const gyre_communicator* communicator);
int gyre_size(const gyre_communicator* communicator);
int gyre_local_rank(const gyre_communicator* communicator);
int gyre_local_size(const gyre_communicator* communicator);

/* `in` may be `out`. Counts are elements. */
gyre_status gyre_all_reduce(gyre_communicator* communicator, const void* in, void* out, int64_t count, gyre_dtype dtype,
                            gyre_op op);
/* `count` elements of each rank; `out` has size times as many. */
gyre_status gyre_all_gather(gyre_communicator* communicator, const void* in, void* out, int64_t count,
                            gyre_dtype dtype);
gyre_status gyre_broadcast(gyre_communicator* communicator, void* in_out, int64_t count, gyre_dtype dtype, int root);
gyre_status gyre_barrier(gyre_communicator* communicator);
/* The same, of memory on a device: `in` and `out` are both there. */
gyre_status gyre_all_reduce_on(gyre_communicator* communicator, const void* in, void* out, int64_t count,
                               gyre_dtype dtype, gyre_op op, gyre_device device);
gyre_status gyre_all_gather_on(gyre_communicator* communicator, const void* in, void* out, int64_t count,
                               gyre_dtype dtype, gyre_device device);
gyre_status gyre_broadcast_on(gyre_communicator* communicator, void* in_out, int64_t count, gyre_dtype dtype, int root,
                              gyre_device device);

/* Averages over all ranks, with the defaults of gyre::ReducerOptions. */
gyre_status gyre_reducer_create(gyre_communicator* communicator, gyre_reducer** reducer);
void gyre_reducer_destroy(gyre_reducer* reducer);
/* Before start. `*index` becomes the gradient's number: 0, 1, ... */
gyre_status gyre_reducer_register(gyre_reducer* reducer, const char* name, const int64_t* shape, int dimensions,
                                  gyre_dtype dtype, int* index);
/* The gradient is to be on a device: the same GPU for all gradients of this rank, on any stream there. */
gyre_status gyre_reducer_register_on(gyre_reducer* reducer, const char* name, const int64_t* shape, int dimensions,
                                     gyre_dtype dtype, gyre_device device, int* index);
gyre_status gyre_reducer_start(gyre_reducer* reducer);
/* Where the gradient lives, in memory that the host's ranks share, or on the GPU; NULL before start, or for an unknown
 * index. */
void* gyre_reducer_gradient(gyre_reducer* reducer, int index);
/* It is there, in gyre_reducer_gradient's memory (on a GPU, after what was queued on the stream that it was registered
 * on); or in the caller's, which must stay as it is until the wait; or this rank has none. From any thread. */
gyre_status gyre_reducer_ready(gyre_reducer* reducer, int index);
gyre_status gyre_reducer_ready_at(gyre_reducer* reducer, int index, void* data, int64_t count, gyre_dtype dtype);
/* ready_at of memory on the GPU that it was registered on, after what was queued on this stream. */
gyre_status gyre_reducer_ready_at_on(gyre_reducer* reducer, int index, void* data, int64_t count, gyre_dtype dtype,
                                     gyre_device device);
gyre_status gyre_reducer_missing(gyre_reducer* reducer, int index);
/* Ends the step: averages are where the gradients were, on a GPU for what is queued on their streams from then on. */
gyre_status gyre_reducer_wait(gyre_reducer* reducer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* GYRE_C_GYRE_H_ */
