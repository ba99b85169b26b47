# Every package Gyre stands on, found in one place. A required one that is missing stops the configuration and
# says how to get it; an optional one that is missing is recorded with the reason, which `gyrerun --check-build` prints.
include_guard(GLOBAL)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(absl REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
if(GYRE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# Optional parts. gyre_record_part(name found version reason) fills the table that becomes build_info.h.
set(GYRE_PARTS "")
macro(gyre_record_part name found version reason)
  if(${found})
    list(APPEND GYRE_PARTS "${name}|1|${version}|")
    message(STATUS "Gyre: ${name}: yes ${version}")
  else()
    list(APPEND GYRE_PARTS "${name}|0||${reason}")
    message(STATUS "Gyre: ${name}: no (${reason})")
  endif()
endmacro()

option(GYRE_WITH_MPI "Use Open MPI where found (GYRE_BACKEND=mpi, gyre-bench --against mpi)" ON)
if(GYRE_WITH_MPI)
  # By name, so that an MPICH installed beside it is not taken for it.
  pkg_check_modules(OMPI IMPORTED_TARGET ompi-c)
endif()
gyre_record_part(mpi "${OMPI_FOUND}" "${OMPI_VERSION}" "Open MPI's development package was not found")

# What else gyre-bench takes where it is there.
find_package(Gloo QUIET)
gyre_record_part(gloo "${Gloo_FOUND}" "${Gloo_VERSION}" "Gloo's development package was not found")
find_package(benchmark QUIET)
gyre_record_part(benchmark "${benchmark_FOUND}" "${benchmark_VERSION}" "Google Benchmark was not found")

# What bindings/torch is tested with, and torch_cnn made of.
if(GYRE_TORCH STREQUAL "ON")
  find_package(Torch REQUIRED)
elseif(GYRE_TORCH STREQUAL "OFF")
  set(GYRE_TORCH_REASON "GYRE_TORCH is OFF")
elseif(GYRE_SANITIZER)
  set(GYRE_TORCH_REASON "not under a sanitizer, with which LibTorch was not built")
else()
  find_package(Torch QUIET)
  set(GYRE_TORCH_REASON "LibTorch's development package was not found")
endif()
gyre_record_part(torch "${Torch_FOUND}" "${Torch_VERSION}" "${GYRE_TORCH_REASON}")

option(GYRE_WITH_UCX "Use UCX where found (GYRE_BACKEND=ucx)" ON)
if(GYRE_WITH_UCX)
  pkg_check_modules(UCX IMPORTED_TARGET ucx)
endif()
gyre_record_part(ucx "${UCX_FOUND}" "${UCX_VERSION}" "the development package of UCX was not found")
# libgyre_cuda.so, which src/device/cuda makes, is built where nvcc is.
find_package(CUDAToolkit QUIET)
gyre_record_part(cuda "${CUDAToolkit_FOUND}" "${CUDAToolkit_VERSION}" "the CUDA Toolkit was not found")
option(GYRE_WITH_CUDA "Compile the CUDA kernels where nvcc is found" ON)
set(GYRE_CUDA OFF)
if(GYRE_WITH_CUDA AND CUDAToolkit_NVCC_EXECUTABLE AND NOT GYRE_SANITIZER AND CUDAToolkit_VERSION VERSION_LESS 12)
  message(STATUS "Gyre: no CUDA kernels: CUDA ${CUDAToolkit_VERSION} has no C++20, 12.0 has")
elseif(GYRE_WITH_CUDA AND CUDAToolkit_NVCC_EXECUTABLE AND NOT GYRE_SANITIZER)
  set(GYRE_CUDA ON)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90)  # Hopper's own code, and what drivers translate for the others
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # nvcc's since 12.0, which CMake knows since 3.26
endif()
gyre_record_part(gpu_tensors "${GYRE_CUDA}" "" "libgyre_cuda.so is built by CUDA 12's nvcc or a later one, without a \
sanitizer")
include(GyreCudaLibraries)

find_library(OPENBLAS_LIBRARY NAMES openblas PATH_SUFFIXES openblas-serial openblas-pthread openblas-openmp)
find_path(OPENBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} openblas
          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)
