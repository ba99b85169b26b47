// MPI as the membership probe sees it; one file a library, chosen in CMake.
#pragma once

void ProbeMpiInit();
int ProbeMpiFinish();  // the number of ranks that an allreduce counts; then finalises
