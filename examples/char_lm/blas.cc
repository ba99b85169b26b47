#include "blas.h"

#include <cblas.h>

extern "C" void openblas_set_num_threads(int count);  // in every build of OpenBLAS, but not in every cblas.h

namespace char_lm {

namespace {

CBLAS_TRANSPOSE Convert(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

}  // namespace

void MatrixProduct(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner, const float* a,
                   const float* b, float beta, float* c) {
  cblas_sgemm(CblasRowMajor, Convert(transpose_a), Convert(transpose_b), rows, columns, inner, 1.0f, a,
              transpose_a == Transpose::kYes ? rows : inner, b, transpose_b == Transpose::kYes ? inner : columns, beta,
              c, columns);
}

void MatrixProduct(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner, const double* a,
                   const double* b, double beta, double* c) {
  cblas_dgemm(CblasRowMajor, Convert(transpose_a), Convert(transpose_b), rows, columns, inner, 1.0, a,
              transpose_a == Transpose::kYes ? rows : inner, b, transpose_b == Transpose::kYes ? inner : columns, beta,
              c, columns);
}

void Accumulate(int count, const float* x, float* y) {
  cblas_saxpy(count, 1.0f, x, 1, y, 1);
}
void Accumulate(int count, const double* x, double* y) {
  cblas_daxpy(count, 1.0, x, 1, y, 1);
}

void UseOneThread() {
  openblas_set_num_threads(1);
}

}  // namespace char_lm
