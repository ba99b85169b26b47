// Matrix products by OpenBLAS, alike for float and double. Matrices are dense and lie row by row.
#pragma once

namespace char_lm {

enum class Transpose { kNo, kYes };

// C = A * B + beta * C, where C is rows x columns, A (after its transposition) rows x inner, B likewise inner x
// columns.
void MatrixProduct(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner, const float* a,
                   const float* b, float beta, float* c);
void MatrixProduct(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner, const double* a,
                   const double* b, double beta, double* c);

// y += x, of `count` elements. The same bits with every kernel of BLAS: it multiplies x by 1, which is exact.
void Accumulate(int count, const float* x, float* y);
void Accumulate(int count, const double* x, double* y);

// Each rank computes on its own thread only: the ranks are the parallelism.
void UseOneThread();

}  // namespace char_lm
