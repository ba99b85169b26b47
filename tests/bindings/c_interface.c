/* The C interface on every rank of a job: CTest starts it under gyrerun. Exit code 0: all was as expected. */
#include <gyre/c/gyre.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "expected: %s\n", what);
  ++failures;
}

static void expect_ok(gyre_status status, const char* what) {
  if (status.code == 0) return;
  fprintf(stderr, "%s: %d: %s\n", what, status.code, status.message);
  ++failures;
}

static void test_collectives(gyre_communicator* world) {
  const int rank = gyre_rank(world), size = gyre_size(world);
  expect(gyre_local_rank(world) == rank && gyre_local_size(world) == size, "one host");
  double values[3] = {rank + 1.0, 10.0 * rank, -1.0};
  expect_ok(gyre_all_reduce(world, values, values, 3, GYRE_F64, GYRE_SUM), "all_reduce");
  expect(values[0] == size * (size + 1) / 2.0 && values[1] == 5.0 * size * (size - 1) && values[2] == -size, "sums");
  const int64_t own = 7 * rank + 1;
  int64_t* all = calloc((size_t)size, sizeof(int64_t));
  expect_ok(gyre_all_gather(world, &own, all, 1, GYRE_I64), "all_gather");
  for (int r = 0; r < size; ++r) expect(all[r] == 7 * r + 1, "what each rank gave");
  free(all);
  char text[6] = "rank0";
  if (rank != 0) memset(text, 'x', sizeof text);
  expect_ok(gyre_broadcast(world, text, sizeof text, GYRE_U8, 0), "broadcast");
  expect(strcmp(text, "rank0") == 0, "rank 0's text");
  expect_ok(gyre_barrier(world), "barrier");
}

/* Devices: the host, said in so many words, and one that cannot be. */
static void test_devices(gyre_communicator* world) {
  const gyre_device host = {-1, NULL}, nowhere = {-2, NULL};
  const int rank = gyre_rank(world), size = gyre_size(world);
  int32_t value = rank + 1;
  expect_ok(gyre_all_reduce_on(world, &value, &value, 1, GYRE_I32, GYRE_SUM, host), "all_reduce_on");
  expect(value == size * (size + 1) / 2, "the sum");
  int32_t* all = calloc((size_t)size, sizeof(int32_t));
  value = rank;
  expect_ok(gyre_all_gather_on(world, &value, all, 1, GYRE_I32, host), "all_gather_on");
  for (int r = 0; r < size; ++r) expect(all[r] == r, "what each rank gave");
  free(all);
  expect_ok(gyre_broadcast_on(world, &value, 1, GYRE_I32, size - 1, host), "broadcast_on");
  expect(value == size - 1, "the last rank's");
  const gyre_status status = gyre_all_reduce_on(world, &value, &value, 1, GYRE_I32, GYRE_SUM, nowhere);
  expect(status.code == 3 && strstr(status.message, "GPU -2") != NULL, "no GPU -2");
}

static void test_errors(gyre_communicator* world) {
  float value = 1;
  gyre_status status = gyre_all_reduce(world, &value, &value, 1, (gyre_dtype)99, GYRE_SUM);
  expect(status.code == 3 && strstr(status.message, "dtype 99") != NULL, "no dtype 99");
  status = gyre_all_reduce(world, &value, &value, 1, GYRE_F32, (gyre_op)-1);
  expect(status.code == 3 && strstr(status.message, "operation -1") != NULL, "no operation -1");
  status = gyre_broadcast(world, &value, 1, GYRE_F32, gyre_size(world));
  expect(status.code == 3 && status.message[0] != 0, "no such root");
}

static void test_reducer(gyre_communicator* world) {
  const int rank = gyre_rank(world), size = gyre_size(world);
  const int64_t shape[2] = {3, 5};
  const double mean = (size + 1) / 2.0;
  gyre_reducer* reducer;
  int matrix, scalar, again = -1;
  double own = 0;
  expect_ok(gyre_reducer_create(world, &reducer), "create");
  expect_ok(gyre_reducer_register(reducer, "matrix", shape, 2, GYRE_F32, &matrix), "register");
  const gyre_device host = {-1, NULL}, nowhere = {-2, NULL};
  expect_ok(gyre_reducer_register_on(reducer, "scalar", NULL, 0, GYRE_F64, host, &scalar), "register_on");
  expect(gyre_reducer_register_on(reducer, "other", NULL, 0, GYRE_F64, nowhere, &again).code == 3 && again == -1,
         "no GPU -2");
  expect(gyre_reducer_register(reducer, "matrix", shape, 2, GYRE_F32, &again).code == 3 && again == -1,
         "one name once");
  expect(gyre_reducer_gradient(reducer, matrix) == NULL, "no memory before start");
  expect_ok(gyre_reducer_start(reducer), "start");
  float* const gradient = gyre_reducer_gradient(reducer, matrix);
  for (int step = 1; step <= 4; ++step) {
    for (int i = 0; i < 15; ++i) gradient[i] = (float)((rank + 1) * (i + step));
    expect_ok(gyre_reducer_ready(reducer, matrix), "ready");
    expect(gyre_reducer_ready(reducer, matrix).code == 9, "ready once a step");
    own = rank + 1;
    expect(gyre_reducer_ready_at_on(reducer, scalar, &own, 1, GYRE_F64, nowhere).code == 3, "ready on the host only");
    if (step == 4) {
      expect_ok(gyre_reducer_missing(reducer, scalar), "missing");
    } else {
      expect_ok(gyre_reducer_ready_at(reducer, scalar, &own, 1, GYRE_F64), "ready_at");
    }
    expect_ok(gyre_reducer_wait(reducer), "wait");
    for (int i = 0; i < 15; ++i) expect(gradient[i] == (float)(mean * (i + step)), "the average");
    expect(own == (step == 4 ? rank + 1 : mean), "the average where it was given");
  }
  gyre_reducer_destroy(reducer);
}

int main(void) {
  gyre_runtime* runtime;
  expect_ok(gyre_runtime_create(&runtime), "gyre_runtime_create");
  if (runtime == NULL) return 1;
  gyre_communicator* const world = gyre_runtime_world(runtime);
  test_collectives(world);
  test_devices(world);
  test_errors(world);
  test_reducer(world);
  gyre_runtime_destroy(runtime);
  gyre_runtime_destroy(NULL);
  return failures == 0 ? 0 : 1;
}
